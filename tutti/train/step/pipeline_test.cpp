// A model cut into pipeline stages trains as one rank does: gradients, losses, evaluation and the
// work of every stage.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/recorder.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;
using spec::Pipeline;

spec::Recipe with_layers(spec::Recipe recipe, int64_t layers) {
  recipe.model.layers = layers;
  return recipe;
}

// No number of stages but one and five divides them.
spec::Recipe five_layers(const spec::Recipe& recipe) { return with_layers(recipe, 5); }

spec::Recipe dropped_gpt() {
  spec::Recipe recipe = five_layers(gpt_recipe());
  recipe.model.dropout = 0.1;
  return recipe;
}

TEST(Pipeline, GradientsAndLossesDoNotDependOnTheStages) {
  spec::Recipe adapters = adapted(with_layers(llama_recipe(), 3));
  adapters.lora.dropout = 0.1;
  for (const spec::Recipe& recipe : {dropped_gpt(), with_layers(llama_recipe(), 3), adapters}) {
    const Training alone = train(recipe, {}, 20);
    for (const Mesh mesh : {Mesh{.pp = 2}, Mesh{.pp = 4}, Mesh{.pp = 2, .vpp = 2},
                            Mesh{.pp = 3, .pipeline = Pipeline::zero_bubble},
                            Mesh{.pp = 2, .pipeline = Pipeline::gpipe}, Mesh{.dp = 2, .pp = 3},
                            Mesh{.dp = 2, .pp = 2, .zero = 1}}) {
      if (mesh.virtual_stages() > recipe.model.layers) continue;
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      expect_same(train(recipe, mesh, 20), alone);
    }
  }
}

// More stages and schedules. A few steps only: with so many layers rounding of any kind (one rank
// with another micro-batch, too) grows beyond the tolerance in twenty.
TEST(Pipeline, OtherSchedulesAndCounts) {
  for (const spec::Recipe& recipe : {dropped_gpt(), five_layers(llama_recipe())}) {
    const Training alone = train(recipe, {}, 3);
    for (const Mesh mesh :
         {Mesh{.pp = 4}, Mesh{.pp = 5}, Mesh{.pp = 2, .vpp = 2},
          Mesh{.pp = 5, .pipeline = Pipeline::zero_bubble},
          Mesh{.pp = 2, .pipeline = Pipeline::zero_bubble},
          Mesh{.pp = 5, .pipeline = Pipeline::gpipe}, Mesh{.pipeline = Pipeline::gpipe},
          Mesh{.dp = 2, .pp = 2, .zero = 1, .pipeline = Pipeline::zero_bubble},
          Mesh{.dp = 3, .pp = 2, .vpp = 2, .zero = 1}, Mesh{.dp = 6, .pp = 2}}) {
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      const Training together = train(recipe, mesh, 3);
      expect_same(together, alone);
      // Every sum but that of tied tables is made as on one rank.
      if (mesh.dp == 1 && !recipe.model.tied_embeddings) {
        EXPECT_EQ(together.gradients, alone.gradients);
      }
    }
  }
}

TEST(Pipeline, RecomputationRepeatsTheSameBits) {
  for (const spec::Recipe& base : {dropped_gpt(), five_layers(llama_recipe())}) {
    for (const Mesh mesh : {Mesh{.pp = 2}, Mesh{.pp = 2, .vpp = 2}, Mesh{.pp = 3}}) {
      SCOPED_TRACE(base.model.name + " " + text_of(mesh));
      const Training plain = train(base, mesh, 2);
      for (const spec::Recompute recompute :
           {spec::Recompute{spec::RecomputeMode::full, 0, 0},
            spec::Recompute{spec::RecomputeMode::full, 0, 1},
            spec::Recompute{spec::RecomputeMode::selective, spec::kPartNorms | spec::kPartMlp,
                            0}}) {
        spec::Recipe recipe = base;
        recipe.recompute = recompute;
        const Training again = train(recipe, mesh, 2);
        EXPECT_EQ(again.gradients, plain.gradients);
        EXPECT_EQ(again.state, plain.state);
      }
    }
  }
}

TEST(Pipeline, InTheComputeType) {
  spec::Recipe recipe = five_layers(gpt_recipe());
  recipe.precision = spec::Precision::bf16;
  const Training alone = train(recipe, {}, 10);
  for (const Mesh mesh : {Mesh{.pp = 3}, Mesh{.pp = 2, .vpp = 2}}) {
    SCOPED_TRACE(text_of(mesh));
    const Training together = train(recipe, mesh, 10);
    EXPECT_EQ(together.disagreements, 0);
    // The residual stream crosses in f32, so nothing is rounded that one rank does not round.
    EXPECT_LT(gradient_error(together.gradients, alone.gradients), 1e-5);
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 1e-3) << "step " << i;
    }
  }
}

// What the comparison is for: each of these is found.
TEST(Pipeline, MistakesAreFound) {
  const spec::Recipe recipe = five_layers(gpt_recipe());
  const Training alone = train(recipe, {}, 1);
  const auto error = [&](const Mesh& mesh, const Sabotage& sabotage) {
    const Training together = train(recipe, mesh, 1, sabotage);
    return std::max(gradient_error(together.gradients, alone.gradients),
                    static_cast<double>(together.disagreements));
  };
  const Sabotage no_tied_sum = {[](parallel::Ranks& ranks) { ranks.pipeline_ends = nullptr; }, {}};
  EXPECT_GT(error({.pp = 2}, no_tied_sum), 1e-2);
  const Sabotage one_stage_alone = {[](parallel::Ranks& ranks) {
                                      if (ranks.at.pp == 1) ranks.replicas = nullptr;
                                    },
                                    {}};
  EXPECT_GT(error({.dp = 2, .pp = 2}, one_stage_alone), 1e-2);
  const Sabotage other_targets = {{}, [](const parallel::Ranks& ranks) {
                                    return ranks.at.pp == 1 ? 1 - ranks.at.dp : ranks.at.dp;
                                  }};
  EXPECT_GT(error({.dp = 2, .pp = 2}, other_targets), 1e-2);
}

TEST(Pipeline, EvaluationIsThatOfOneRank) {
  for (const spec::Recipe& base : {dropped_gpt(), five_layers(llama_recipe())}) {
    const auto evaluate = [&](const Mesh& mesh) {
      const spec::Recipe recipe = recipe_on(base, mesh);
      std::mutex mutex;
      EvaluationResult result;
      const auto body = [&](const parallel::Ranks& ranks) {
        Trainer trainer(recipe, ranks);
        trainer.initialize();
        RankBatches batches(recipe, ranks.at.dp);
        const EvaluationResult before = trainer.evaluate(batches.step(3), 5);
        trainer.step(batches.step(0), 1e-2, 1);
        const EvaluationResult after = trainer.evaluate(batches.step(3), 5);
        EXPECT_NE(before.loss, after.loss);
        const std::lock_guard lock(mutex);
        if (result.tokens > 0) {
          EXPECT_EQ(result.loss, after.loss);  // every rank gets the same
        }
        result = after;
      };
      on_ranks(recipe, body);
      return result;
    };
    const EvaluationResult alone = evaluate({});
    for (const Mesh mesh : {Mesh{.pp = 3}, Mesh{.pp = 2, .vpp = 2},
                            Mesh{.pp = 5, .pipeline = Pipeline::zero_bubble}}) {
      SCOPED_TRACE(base.model.name + " " + text_of(mesh));
      const EvaluationResult together = evaluate(mesh);
      EXPECT_EQ(together.tokens, alone.tokens);
      EXPECT_NEAR(together.loss / alone.loss, 1, 1e-6);
    }
  }
}

// Whichever stage it begins on: the first parameter that it reaches is named on every rank.
TEST(Pipeline, ANonFiniteGradientIsNamedOnEveryRank) {
  const Mesh mesh{.pp = 3};
  const spec::Recipe recipe = recipe_on(five_layers(llama_recipe()), mesh);
  for (const char* name : {"embedding.token.weight", "blocks.2.mlp.down.weight"}) {
    comm::run_threads(mesh, [&](comm::World& world, engine::Stream&) {
      const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      for (const StateTensor& tensor : trainer.state().tensors()) {
        if (tensor.name != std::string("param.") + name) continue;
        const int64_t count = tensor.shape[0] * tensor.shape[1];
        std::fill_n(static_cast<float*>(tensor.data), count, std::nanf(""));
      }
      trainer.state_changed();
      RankBatches batches(recipe, ranks.at.dp);
      const StepResult result = trainer.step(batches.step(0), 1e-2, 1);
      EXPECT_FALSE(result.applied);
      EXPECT_EQ(result.nonfinite_tensor, "embedding.token.weight");
    });
  }
}

using Key = std::tuple<std::string, std::array<int64_t, 6>, double, double>;
struct StageWork {
  std::map<Key, int64_t> operations;       // of this rank
  std::map<std::string, double> together;  // bytes, by kind of call
  int64_t normed = 0;  // elements in the gradient's norm; stage_described: padding too

  void add(const std::string& name, const std::array<int64_t, 6>& dims, double flops, double bytes,
           bool collective) {
    // Gradients travel in buckets and are squared range by range: the sums are described.
    if (collective) {
      together[name] += bytes;
    } else if (name == "squared_norm") {
      normed += dims[0];
    } else {
      ++operations[{name, dims, flops, bytes}];
    }
  }
};

bool is_collective(const std::string& name) {
  for (const char* one : {"all_reduce", "reduce_scatter", "all_gather", "send", "receive"}) {
    if (name == one) return true;
  }
  return false;
}

std::vector<StageWork> stage_recorded(const spec::Recipe& recipe) {
  std::vector<StageWork> out(static_cast<size_t>(recipe.parallel.pp));
  std::mutex mutex;
  comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream&) {
    const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
    Trainer trainer(recipe, ranks);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    engine::Recorder recorder;
    trainer.stream().set_recorder(&recorder);
    trainer.step(batches.step(0), 1e-3, 1);
    trainer.stream().set_recorder(nullptr);
    if (ranks.at.dp > 0) return;
    const std::lock_guard lock(mutex);
    StageWork& work = out[static_cast<size_t>(ranks.at.pp)];
    for (const engine::OpRecord& record : recorder.records()) {
      work.add(record.op, record.dims, record.flops, record.bytes, is_collective(record.op));
    }
  });
  return out;
}

StageWork stage_described(const spec::Recipe& recipe, int64_t stage) {
  const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
  StageWork out;
  for (const spec::Op& op : spec::step_operations(program, spec::make_schedule(recipe), stage)) {
    out.add(op.name, op.dims, op.flops, op.bytes, op.collective);
  }
  return out;
}

std::string difference(const StageWork& actual, const StageWork& expected) {
  std::string text;
  const auto note = [&](const StageWork& from, const StageWork& other, const char* what) {
    for (const auto& [key, count] : from.operations) {
      const auto found = other.operations.find(key);
      const int64_t there = found == other.operations.end() ? 0 : found->second;
      if (there == count) continue;
      const auto& [name, dims, flops, bytes] = key;
      text += fmt::format("{} {} times, not {}: {} {} flops {} bytes {}\n", what, count, there,
                          name, fmt::join(dims, "x"), flops, bytes);
    }
    for (const auto& [name, bytes] : from.together) {
      const auto found = other.together.find(name);
      const double there = found == other.together.end() ? 0 : found->second;
      if (there != bytes) text += fmt::format("{} {} {}, not {}\n", what, name, bytes, there);
    }
  };
  note(actual, expected, "executed");
  note(expected, actual, "described");
  return text;
}

TEST(Pipeline, StagesExecuteTheDescription) {
  spec::Recipe full = dropped_gpt();
  full.recompute = {spec::RecomputeMode::full, 0, 1};
  for (spec::Recipe base :
       {dropped_gpt(), five_layers(llama_recipe()), adapted(five_layers(gpt_recipe())), full}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      base.precision = precision;
      for (const Mesh mesh : {Mesh{.pp = 3}, Mesh{.pp = 2, .vpp = 2}, Mesh{.dp = 2, .pp = 2},
                              Mesh{.pp = 3, .pipeline = Pipeline::zero_bubble}}) {
        const spec::Recipe recipe = recipe_on(base, mesh);
        const std::vector<StageWork> actual = stage_recorded(recipe);
        int64_t normed = 0;
        for (int64_t stage = 0; stage < mesh.pp; ++stage) {
          SCOPED_TRACE(fmt::format("{} {} {} stage {}", recipe.model.name,
                                   precision == spec::Precision::f32 ? "f32" : "bf16",
                                   text_of(mesh), stage));
          const StageWork& work = actual[static_cast<size_t>(stage)];
          const StageWork expected = stage_described(recipe, stage);
          EXPECT_EQ(difference(work, expected), "");
          EXPECT_LE(work.normed, expected.normed);
          normed += work.normed;
        }
        // Every parameter counts once, tied tables too.
        EXPECT_EQ(normed, spec::param_table(recipe.model, recipe.lora).trainable_count());
      }
    }
  }
}

// The map has no slot too many: a step writes into each. (Too few would abort.)
TEST(Pipeline, EverySlotOfTheMapIsUsed) {
  for (const Mesh mesh :
       {Mesh{.pp = 3}, Mesh{.pp = 2, .vpp = 2}, Mesh{.pp = 3, .pipeline = Pipeline::zero_bubble},
        Mesh{.pp = 2, .pipeline = Pipeline::gpipe}}) {
    const spec::Recipe recipe = recipe_on(five_layers(gpt_recipe()), mesh);
    comm::run_threads(mesh, [&](comm::World& world, engine::Stream&) {
      const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      RankBatches batches(recipe, ranks.at.dp);
      trainer.memory().poison_transients();
      trainer.step(batches.step(0), 1e-3, 1);
      const spec::MemoryMap map = spec::memory_map(recipe, spec::tutti_profile(), ranks.at.pp);
      for (const spec::ArenaPlan& arena : map.arenas) {
        EXPECT_EQ(trainer.memory().arena(arena.name).bytes(), arena.bytes) << arena.name;
      }
      for (const spec::SlotPlan& slot : map.arena("activations").slots) {
        for (int64_t i = 0; i < slot.repeats; ++i) {
          for (const spec::TensorPlan& tensor : slot.tensors) {
            const engine::Vector values =
                trainer.memory().vector("activations", slot.name, i, tensor.name);
            EXPECT_FALSE(std::isnan(values.as<float>()[0]))
                << text_of(mesh) << " stage " << ranks.at.pp << " " << slot.name << " " << i << " "
                << tensor.name;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti::train
