// Mixtures of experts on tensor parallel ranks: gradients, losses and what routers report are those
// of one rank; what is allocated and done is what spec describes. The ranks are threads of this
// process.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/engine/recorder.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/faulty_groups.h"
#include "tutti/train/testing/routing_record.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

// Four experts, whose columns two and four ranks divide. Blocks of rows begin within sequences:
// three sequences of four tokens on two or four ranks.
spec::Recipe on_mesh(spec::Recipe recipe, const Mesh& mesh) {
  recipe.model.heads = 4;
  recipe.model.head_dim = 6;
  recipe.model.ffn = 40;
  recipe.model.kv_heads = recipe.model.kv_heads < 4 ? 2 : 4;
  recipe.model.moe.experts = 4;
  recipe.parallel = mesh;
  recipe.threads = 1;
  recipe.batch = {12, 3, mesh.cp > 1 ? 8 : 4};
  return recipe;
}

std::vector<spec::Recipe> recipes() {
  spec::Recipe dropped = mixtral_recipe();
  dropped.model.dropout = 0.1;
  return {dropped, mixed_moe_recipe(), capacity_recipe()};
}

struct Alone {
  RoutingRecord routing;
  Training training;
};
void train_alone(const spec::Recipe& recipe, int64_t steps, Alone& out) {
  out.training = train_on(recipe, steps, {}, out.routing.recorder());
}

TEST(TensorParallelExperts, GradientsAndLossesAreThoseOfOneRank) {
  for (const spec::Recipe& recipe : recipes()) {
    Alone alone;
    train_alone(on_mesh(recipe, {}), 20, alone);
    for (const Mesh& mesh : {Mesh{.tp = 2}, Mesh{.tp = 4}, Mesh{.dp = 2, .tp = 2, .ep = 2},
                             Mesh{.dp = 2, .tp = 2, .zero = 1}}) {
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      expect_same(train_on(on_mesh(recipe, mesh), 20, {}, alone.routing.player()), alone.training);
    }
  }
}

// Each row is routed once, so the ranks cannot disagree; a capacity drops the same copies.
TEST(TensorParallelExperts, TheFirstStepRoutesTheSameByItself) {
  for (const spec::Recipe& recipe : recipes()) {
    Alone alone;
    train_alone(on_mesh(recipe, {}), 0, alone);
    for (const Mesh& mesh : {Mesh{.tp = 4}, Mesh{.dp = 2, .tp = 2, .ep = 2}}) {
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      RoutingRecord routing;
      const Training together = train_on(on_mesh(recipe, mesh), 0, {}, routing.recorder());
      const RoutingRecord::Difference difference = alone.routing.compare(routing);
      EXPECT_EQ(difference.no_ties, 0);
      if (difference.rows > 0) continue;
      EXPECT_EQ(together.disagreements, 0);
      EXPECT_LT(gradient_error(together.gradients, alone.training.gradients), 1e-5);
    }
  }
}

TEST(TensorParallelExperts, RecomputationChangesNoBit) {
  for (spec::Recipe recipe : recipes()) {
    recipe = on_mesh(recipe, {.tp = 2});
    const Training plain = train_on(recipe, 2);
    for (const spec::Parts parts : {spec::kPartMlp, spec::kPartActivation | spec::kPartNorms}) {
      recipe.recompute = {spec::RecomputeMode::selective, parts, 0};
      EXPECT_EQ(train_on(recipe, 2).state, plain.state);
    }
    recipe.recompute = {spec::RecomputeMode::full, 0, 0};
    EXPECT_EQ(train_on(recipe, 2).state, plain.state);
  }
}

TEST(TensorParallelExperts, InTheComputeType) {
  for (spec::Recipe recipe : recipes()) {
    recipe.precision = spec::Precision::bf16;
    Alone alone;
    train_alone(on_mesh(recipe, {}), 10, alone);
    const Training together = train_on(on_mesh(recipe, {.tp = 4}), 10, {}, alone.routing.player());
    EXPECT_EQ(together.disagreements, 0);
    EXPECT_LT(gradient_error(together.gradients, alone.training.gradients), 6e-2);
    for (size_t i = 0; i < together.losses.size(); ++i) {
      EXPECT_NEAR(together.losses[i] / alone.training.losses[i], 1, 2e-2) << "step " << i;
    }
  }
}

// The router's gradient is of own rows on each rank: left apart, or counted on all, it is wrong.
TEST(TensorParallelExperts, MistakesAreFound) {
  const spec::Recipe recipe = mixed_moe_recipe();
  Alone alone;
  train_alone(on_mesh(recipe, {}), 0, alone);
  const auto error = [&](const Sabotage& sabotage) {
    return gradient_error(
        train_on(on_mesh(recipe, {.tp = 2}), 0, sabotage, alone.routing.player()).gradients,
        alone.training.gradients);
  };
  FaultyGroups faulty;
  const auto divided = [](parallel::Ranks& ranks) -> comm::Group*& { return ranks.layers.tp; };
  using comm::CallKind;
  EXPECT_LT(error(faulty.make(divided, {})), 1e-5);
  EXPECT_GT(error(faulty.make(divided, {CallKind::all_reduce, Mistake::skip})), 1e-2);
  EXPECT_GT(error(faulty.make(divided, {CallKind::all_reduce, Mistake::twice})), 1e-2);
  EXPECT_GT(error(faulty.make(divided, {CallKind::reduce_scatter, Mistake::skip})), 1e-2);
}

// The rows of experts are known only when they are there: without a capacity all copies are used,
// so that every operation is the described one; with several expert parallel ranks, sums are.
TEST(TensorParallelExperts, RecordedStepEqualsTheDescription) {
  struct Sums {
    int64_t count = 0;
    double flops = 0, bytes = 0;
    bool operator==(const Sums&) const = default;
  };
  using Table = std::map<std::string, Sums>;
  for (spec::Recipe base : {mixtral_recipe(), mixed_moe_recipe()}) {
    for (const Mesh& mesh : {Mesh{.tp = 2}, Mesh{.tp = 4}, Mesh{.dp = 2}, Mesh{.dp = 2, .tp = 2},
                             Mesh{.dp = 2, .tp = 2, .ep = 2}, Mesh{.tp = 2, .cp = 2}}) {
      for (const auto& recompute :
           {spec::Recompute{}, spec::Recompute{spec::RecomputeMode::selective, spec::kPartMlp, 0},
            spec::Recompute{spec::RecomputeMode::full, 0, 0}}) {
        spec::Recipe recipe = on_mesh(base, mesh);
        recipe.recompute = recompute;
        SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
        const auto add = [&](const std::string& op, std::array<int64_t, 6> dims, double flops,
                             double bytes, Table& out) {
          if (op == "squared_norm") return;  // of what several ranks hold, one counts it
          if (mesh.ep > 1) {
            if (op.starts_with("grouped_gemm")) dims[1] = 0;
            if (op.starts_with("activation")) dims[0] = 0;
          }
          // Sums of what ranks hold in common come in pieces; exchanged copies in any sizes.
          if (op == "all_to_all" || op == "all_reduce") dims[0] = 0;
          Sums& sums = out[fmt::format("{} {}", op, fmt::join(dims, "x"))];
          if (op != "all_reduce") ++sums.count;
          sums.flops += flops;
          sums.bytes += bytes;
        };
        Table actual, expected;
        const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
        for (const spec::Op& op : spec::step_operations(program, spec::make_schedule(recipe), 0)) {
          add(op.name, op.dims, op.flops, op.bytes, expected);
        }
        for (auto& [name, sums] : expected) {
          sums.count *= mesh.world();
          sums.flops *= static_cast<double>(mesh.world());
          sums.bytes *= static_cast<double>(mesh.world());
        }
        std::mutex mutex;
        on_ranks(recipe, [&](const parallel::Ranks& ranks) {
          Trainer trainer(recipe, ranks);
          for (const spec::ArenaPlan& plan : spec::memory_map(recipe).arenas) {
            EXPECT_EQ(trainer.memory().arena(plan.name).bytes(), plan.bytes) << plan.name;
          }
          trainer.initialize();
          RankBatches batches(recipe, ranks.at.dp);
          engine::Recorder recorder;
          trainer.stream().set_recorder(&recorder);
          trainer.step(batches.step(0), 1e-3, 1);
          trainer.stream().set_recorder(nullptr);
          const std::lock_guard lock(mutex);
          for (const engine::OpRecord& record : recorder.records()) {
            add(record.op, record.dims, record.flops, record.bytes, actual);
          }
        });
        for (const auto& [name, sums] : expected) {
          EXPECT_EQ(actual[name].count, sums.count) << name;
          EXPECT_NEAR(actual[name].flops, sums.flops, 1e-9 * sums.flops) << name;
          EXPECT_NEAR(actual[name].bytes, sums.bytes, 1e-9 * sums.bytes) << name;
        }
        for (const auto& [name, sums] : actual) {
          EXPECT_TRUE(expected.contains(name)) << "executed " << sums.count << " times: " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
