// ZeRO 2 and 3: ranks that hold shards of gradients and weights train as one that holds all.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/recorder.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;

// What layers take turns in does not outlive a pass.
void poison_buffers(const model::Memory& memory) {
  for (const char* name : {"gathered", "layer_gradients"}) {
    if (memory.map().has(name)) memory.arena(name).poison(0, memory.arena(name).bytes());
  }
}

spec::Recipe deep(spec::Recipe recipe, int64_t layers) {
  recipe.model.layers = layers;
  return recipe;
}

TEST(Zero, GradientsAndLossesDoNotDependOnTheStage) {
  spec::Recipe dropped = deep(gpt_recipe(), 3);
  dropped.model.dropout = 0.1;
  dropped.recompute.mode = spec::RecomputeMode::full;
  for (const spec::Recipe& recipe :
       {gpt_recipe(), deep(llama_recipe(), 4), dropped, adapted(gpt_recipe())}) {
    const Training alone = train(recipe, {}, 20);
    for (const spec::Mesh mesh : {spec::Mesh{.dp = 2, .zero = 2}, spec::Mesh{.dp = 3, .zero = 3},
                                  spec::Mesh{.dp = 4, .zero = 2}, spec::Mesh{.dp = 6, .zero = 3}}) {
      SCOPED_TRACE(
          fmt::format("{} dropout {} {}", recipe.model.name, recipe.model.dropout, text_of(mesh)));
      expect_same(train(recipe, mesh, 20), alone);
    }
  }
}

// One micro-batch: the same sums in the same order.
TEST(Zero, GradientsOfOneMicroBatchHaveTheSameBits) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe base = deep(llama_recipe(), 3);
    base.precision = precision;
    std::vector<Tensors> all;
    for (const int64_t zero : {0, 1, 2, 3}) {
      spec::Recipe recipe = recipe_on(base, {.dp = 3, .zero = zero});
      recipe.batch = {12, 4, 7};
      const Training training = train_on(recipe, 1);
      EXPECT_EQ(training.disagreements, 0);
      all.push_back(training.gradients);
      EXPECT_EQ(all.back(), all.front()) << "zero " << zero;
    }
  }
}

TEST(Zero, InTheComputeTypeStages2And3AreOne) {
  spec::Recipe recipe = llama_recipe();
  recipe.precision = spec::Precision::bf16;
  const Training gradients = train(recipe, {.dp = 3, .zero = 2}, 10);
  const Training weights = train(recipe, {.dp = 3, .zero = 3}, 10);
  EXPECT_EQ(weights.losses, gradients.losses);
  EXPECT_EQ(weights.state, gradients.state);
}

// Sums over a step of what ranks did and what is described: bytes of collectives by kind, elements
// by operation for those that go by slices, and calls of all others.
struct Done {
  std::map<std::string, double> bytes;
  std::map<std::string, int64_t> elements;
  std::map<std::string, int64_t> calls;
  std::map<std::string, double> call_bytes;
  bool operator==(const Done&) const = default;

  void add(const std::string& op, const std::array<int64_t, 6>& dims, double op_bytes,
           bool collective) {
    if (collective) {
      bytes[fmt::format("{} of {}", op, dims[1])] += op_bytes;
    } else if (op == "squared_norm" || op == "adamw") {
      elements[op] += dims[0];
    } else if (op == "column_sum" && dims[0] == 1) {
      elements[op] += dims[1];
    } else {
      const std::string key = fmt::format("{} {}", op, fmt::join(dims, "x"));
      ++calls[key];
      call_bytes[key] += op_bytes;
    }
  }
};

bool is_zero_collective(const std::string& op) {
  return op == "all_reduce" || op == "all_gather" || op == "reduce_scatter";
}

TEST(Zero, StepsAreAsDescribed) {
  for (const spec::Recipe& base : {gpt_recipe(), deep(llama_recipe(), 3), adapted(gpt_recipe())}) {
    for (const int64_t zero : {2, 3}) {
      for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
        spec::Recipe recipe = recipe_on(base, {.dp = 3, .zero = zero});
        recipe.precision = precision;
        SCOPED_TRACE(fmt::format("{} zero {}", recipe.model.name, zero));
        Done expected;
        const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
        for (const spec::Op& op : spec::step_operations(program, spec::make_schedule(recipe), 0)) {
          expected.add(op.name, op.dims, op.bytes, op.collective);
        }
        comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream&) {
          const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
          Trainer trainer(recipe, ranks);
          trainer.initialize();
          poison_buffers(trainer.memory());
          RankBatches batches(recipe, ranks.at.dp);
          engine::Recorder recorder;
          trainer.stream().set_recorder(&recorder);
          trainer.step(batches.step(0), 1e-3, 1);
          trainer.stream().set_recorder(nullptr);
          Done done;
          for (const engine::OpRecord& record : recorder.records()) {
            done.add(record.op, record.dims, record.bytes, is_zero_collective(record.op));
          }
          if (world.rank() != 0) return;
          // Of the squares only those of parameters, without padding.
          EXPECT_LE(done.elements["squared_norm"], expected.elements["squared_norm"]);
          done.elements["squared_norm"] = expected.elements["squared_norm"];
          EXPECT_EQ(done.bytes, expected.bytes);
          EXPECT_EQ(done.elements, expected.elements);
          EXPECT_EQ(done.calls, expected.calls);
          EXPECT_EQ(done.call_bytes, expected.call_bytes);
        });
      }
    }
  }
}

// Delayed weight gradients take the buffer of their layer when they are made; those of the head
// leave it before the next loss.
TEST(Zero, WeightGradientsMayBeDelayed) {
  spec::Recipe dropped = deep(gpt_recipe(), 5);
  dropped.model.dropout = 0.1;
  spec::Recipe repeated = dropped;
  repeated.recompute.mode = spec::RecomputeMode::full;
  for (const spec::Recipe& recipe :
       {dropped, repeated, deep(llama_recipe(), 4), adapted(deep(gpt_recipe(), 4))}) {
    const Training alone = train(recipe, {}, 3);
    for (const spec::Mesh mesh :
         {spec::Mesh{.dp = 2, .pp = 2, .zero = 2, .pipeline = spec::Pipeline::zero_bubble},
          spec::Mesh{.dp = 2, .pp = 3, .zero = 3, .pipeline = spec::Pipeline::zero_bubble}}) {
      if (mesh.zero == 3 && recipe.recompute.mode != spec::RecomputeMode::none) continue;
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      expect_same(train(recipe, mesh, 3), alone);
    }
  }
}

// Evaluation between steps, logits afterwards.
TEST(Zero, EvaluatesBetweenSteps) {
  const spec::Recipe base = deep(llama_recipe(), 3);
  struct Found {
    double loss = 0;
    std::vector<float> logits;
  };
  const auto run = [&](const spec::Mesh& mesh, const parallel::Ranks& ranks) {
    const spec::Recipe recipe = recipe_on(base, mesh);
    Trainer trainer(recipe, ranks);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    Found found;
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
      poison_buffers(trainer.memory());
      found.loss = trainer.evaluate(batches.step(0), 12 / recipe.batch.micro / mesh.dp).loss;
      poison_buffers(trainer.memory());
    }
    RankBatches same(recipe, 0);
    found.logits = trainer.logits(same.step(0)());
    return found;
  };
  const Found alone = run({}, {});
  for (const int64_t zero : {0, 1, 2, 3}) {
    const spec::Mesh mesh = {.dp = 3, .zero = zero};
    comm::run_threads(mesh, [&](comm::World& world, engine::Stream&) {
      const Found found = run(mesh, parallel::ranks_of(world, base.model.kv_heads));
      EXPECT_NEAR(found.loss / alone.loss, 1, 1e-5);
      ASSERT_EQ(found.logits.size(), alone.logits.size());
      for (size_t i = 0; i < alone.logits.size(); ++i) {
        ASSERT_NEAR(found.logits[i], alone.logits[i], 1e-3);
      }
    });
  }
}

// No rank ever has memory for the whole model: its arenas are those of the map, and hold a shard
// and a few layers.
TEST(Zero, ArenasAreThoseOfTheMap) {
  const spec::Recipe recipe = recipe_on(deep(llama_recipe(), 12), {.dp = 6, .zero = 3});
  const int64_t whole = spec::param_table(recipe.model).count();
  comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream&) {
    const Trainer trainer(recipe, parallel::ranks_of(world, recipe.model.kv_heads));
    const spec::MemoryMap map = spec::memory_map(recipe);
    for (const spec::ArenaPlan& plan : map.arenas) {
      EXPECT_EQ(trainer.memory().arena(plan.name).bytes(), plan.bytes) << plan.name;
    }
    EXPECT_LT(map.arena("weights").bytes + map.arena("gathered").bytes, 4 * whole * 2 / 3);
    EXPECT_LT(map.arena("gradients").bytes + map.arena("layer_gradients").bytes, 4 * whole * 2 / 3);
  });
}

}  // namespace
}  // namespace tutti::train
