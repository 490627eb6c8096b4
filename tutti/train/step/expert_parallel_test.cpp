// Experts on several ranks, and models with experts on several ranks: gradients, losses and what
// routers report do not depend on the mesh. The ranks are threads of this process.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/routing_record.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

// Experts for two, three and six ranks.
spec::Recipe six_experts(spec::Recipe recipe) {
  recipe.model.moe.experts = 6;
  return recipe;
}

struct Recorded {
  RoutingRecord routing;
  Training training;
};
void record_alone(const spec::Recipe& recipe, int64_t steps, Recorded& out) {
  out.training = train(recipe, {}, steps, {}, out.routing.recorder());
}

TEST(ExpertParallel, GradientsAndLossesDoNotDependOnTheMesh) {
  spec::Recipe dropped = six_experts(mixtral_recipe());
  dropped.model.dropout = 0.1;
  for (const spec::Recipe& recipe :
       {dropped, six_experts(mixed_moe_recipe()), six_experts(capacity_recipe())}) {
    Recorded alone;
    record_alone(recipe, 20, alone);
    for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 2, .ep = 2},
                             Mesh{.dp = 3, .ep = 3, .zero = 1}, Mesh{.dp = 4, .ep = 2}}) {
      SCOPED_TRACE(fmt::format("{} {}", recipe.model.name, text_of(mesh)));
      expect_same(train(recipe, mesh, 20, {}, alone.routing.player()), alone.training);
    }
  }
}

// Without a recording, before rounding has had time to grow: the same choices but for ties.
TEST(ExpertParallel, TheFirstStepRoutesTheSameByItself) {
  for (const spec::Recipe& recipe :
       {six_experts(mixtral_recipe()), six_experts(capacity_recipe())}) {
    Recorded alone;
    record_alone(recipe, 0, alone);
    for (const Mesh& mesh : {Mesh{.dp = 2, .ep = 2}, Mesh{.dp = 6, .ep = 3, .zero = 1}}) {
      SCOPED_TRACE(fmt::format("{} {}", recipe.model.name, text_of(mesh)));
      RoutingRecord routing;
      const Training together = train(recipe, mesh, 0, {}, routing.recorder());
      const RoutingRecord::Difference difference = alone.routing.compare(routing);
      EXPECT_EQ(difference.no_ties, 0);
      if (difference.rows > 0) continue;
      EXPECT_LT(gradient_error(together.gradients, alone.training.gradients), 1e-5);
    }
  }
}

TEST(ExpertParallel, MistakesAreFound) {
  const spec::Recipe recipe = six_experts(mixed_moe_recipe());
  Recorded alone;
  record_alone(recipe, 1, alone);
  const auto error = [&](const Mesh& mesh, const std::function<void(parallel::Ranks&)>& mistake) {
    const Training together = train(recipe, mesh, 1, {mistake, {}}, alone.routing.player());
    return gradient_error(together.gradients, alone.training.gradients);
  };
  const Mesh mesh = {.dp = 4, .ep = 2};
  EXPECT_LT(error(mesh, {}), 1e-5);
  // Gradients of experts that are not summed over the ranks that hold the same.
  EXPECT_GT(error(mesh, [](parallel::Ranks& ranks) { ranks.expert_replicas = nullptr; }), 1e-2);
  // Summed over ranks of other experts, or over all, whose tokens have come here already.
  EXPECT_GT(error(mesh, [](parallel::Ranks& ranks) { ranks.expert_replicas = ranks.layers.ep; }),
            1e-2);
  EXPECT_GT(error(mesh, [](parallel::Ranks& ranks) { ranks.expert_replicas = ranks.replicas; }),
            1e-2);
  // Doubled.
  Tensors gradients = train(recipe, mesh, 0, {}, alone.routing.player()).gradients;
  for (auto& [name, values] : gradients) {
    if (name.find(".experts.") == std::string::npos) continue;
    for (float& value : values) value *= 2;
  }
  EXPECT_GT(gradient_error(gradients, alone.training.gradients), 1e-2);
}

TEST(ExpertParallel, RecomputationChangesNoBit) {
  for (spec::Recipe recipe : {six_experts(mixed_moe_recipe()), six_experts(capacity_recipe())}) {
    const Mesh mesh = {.dp = 2, .ep = 2};
    const Training plain = train(recipe, mesh, 2);
    for (const spec::Parts parts : {spec::kPartMlp, spec::kPartActivation | spec::kPartNorms}) {
      recipe.recompute = {spec::RecomputeMode::selective, parts, 0};
      EXPECT_EQ(train(recipe, mesh, 2).state, plain.state);
    }
    recipe.recompute = {spec::RecomputeMode::full, 0, 0};
    EXPECT_EQ(train(recipe, mesh, 2).state, plain.state);
  }
}

TEST(ExpertParallel, SameMeshSameBits) {
  spec::Recipe recipe = six_experts(mixed_moe_recipe());
  recipe.precision = spec::Precision::bf16;
  const Mesh mesh = {.dp = 3, .ep = 3};
  const Training first = train(recipe, mesh, 5), second = train(recipe, mesh, 5);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.state, second.state);
  EXPECT_EQ(first.disagreements, 0);
}

TEST(ExpertParallel, InTheComputeType) {
  for (spec::Recipe recipe : {six_experts(mixtral_recipe()), six_experts(mixed_moe_recipe())}) {
    recipe.precision = spec::Precision::bf16;
    Recorded alone;
    record_alone(recipe, 10, alone);
    for (const Mesh& mesh : {Mesh{.dp = 3, .ep = 3}, Mesh{.dp = 4, .ep = 2, .zero = 1}}) {
      const Training together = train(recipe, mesh, 10, {}, alone.routing.player());
      EXPECT_EQ(together.disagreements, 0);
      for (size_t i = 0; i < together.losses.size(); ++i) {
        EXPECT_NEAR(together.losses[i] / alone.training.losses[i], 1, 2e-2) << "step " << i;
      }
    }
  }
}

// With a capacity copies travel in pieces of fixed size, whose contents are not counted; to the bit
// as if the hosts had counted.
TEST(ExpertParallel, PiecesChangeNoBit) {
  spec::Recipe base = six_experts(capacity_recipe());
  for (const double capacity : {0.7, 1.5}) {
    base.model.moe.capacity_factor = capacity;
    for (const Mesh& mesh : {Mesh{.dp = 2, .ep = 2}, Mesh{.dp = 6, .ep = 3, .zero = 1},
                             Mesh{.dp = 2, .pp = 2, .ep = 2}}) {
      for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
        base.precision = precision;
        spec::Recipe recipe = recipe_on(base, mesh);
        SCOPED_TRACE(fmt::format("capacity {}, {}", capacity, text_of(mesh)));
        EXPECT_GT(spec::local_sizes(recipe, spec::tutti_profile()).piece_rows, 0);
        const Training pieces = train_on(recipe, 4, {}, {});
        recipe.parallel.expert_room_percent = 10000;  // as much, counted
        EXPECT_EQ(spec::local_sizes(recipe, spec::tutti_profile()).piece_rows, 0);
        const Training counted = train_on(recipe, 4, {}, {});
        EXPECT_EQ(pieces.losses, counted.losses);
        EXPECT_EQ(pieces.state, counted.state);
      }
    }
  }
}

// All tokens to the first expert: with capacity for any routing that is fine, with capacity for the
// balanced load an error that says what to do.
TEST(ExpertParallel, ExceedingTheCapacityIsAnError) {
  spec::Recipe recipe = recipe_on(six_experts(mixtral_recipe()), {.dp = 3, .ep = 3});
  const auto prepare = [](Trainer& trainer) {
    static thread_local model::RoutingTape tape;
    tape.give = [](int64_t /*layer*/, const model::OwnRows& /*rows*/, engine::Matrix experts) {
      for (int64_t row = 0; row < experts.rows; ++row) {
        experts.row<int32_t>(row)[0] = 2;
        experts.row<int32_t>(row)[1] = 3;
      }
      return true;
    };
    trainer.set_routing_tape(&tape);
  };
  EXPECT_EQ(train_on(recipe, 1, {}, prepare).disagreements, 0);
  recipe.parallel.expert_room_percent = 100;
  try {
    train_on(recipe, 1, {}, prepare);
    FAIL() << "there was room";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    const std::string text = error.what();
    for (const char* part : {"layer 0: 84 token copies for the experts of rank 1", "memory for 28",
                             "parallel.expert_room_percent"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  recipe.parallel.expert_room_percent = 300;
  EXPECT_EQ(train_on(recipe, 1, {}, prepare).disagreements, 0);
}

// Saved by ranks with some experts each, continued by ranks with others.
TEST(ExpertParallel, ACheckpointOfOneMeshIsContinuedOnAnother) {
  const spec::Recipe base = six_experts(mixed_moe_recipe());
  Recorded alone;
  record_alone(base, 12, alone);
  for (const auto& [from, to] :
       std::vector<std::pair<Mesh, Mesh>>{{{.dp = 4, .ep = 2}, {.dp = 3, .ep = 3, .zero = 1}},
                                          {{.dp = 6, .ep = 3, .zero = 1}, {.dp = 2}},
                                          {{.dp = 2}, {.dp = 6, .ep = 6}}}) {
    SCOPED_TRACE(text_of(from) + " to " + text_of(to));
    MemoryFileSystem files;
    const Tensors saved = train_and_save(recipe_on(base, from), 6, files, alone.routing.player());
    load_and_go_on(recipe_on(base, to), 6, files, saved, alone.training.losses,
                   alone.routing.player());
  }
}

}  // namespace
}  // namespace tutti::train
