// Sequences on several ranks: gradients and losses do not depend on the mesh. The ranks are threads
// of this process.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/routing_record.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

// Twelve tokens a sequence: two chunks for each of one, two or three ranks.
spec::Recipe recipe_for(spec::Recipe recipe, const Mesh& mesh, int64_t sequence = 12) {
  recipe = recipe_on(recipe, mesh);
  recipe.batch.sequence = sequence;
  return recipe;
}

TEST(ContextParallel, GradientsAndLossesDoNotDependOnTheMesh) {
  spec::Recipe dropped = gpt_recipe();
  dropped.model.dropout = 0.1;
  spec::Recipe adapters = adapted(llama_recipe());
  adapters.lora.dropout = 0.1;
  for (const spec::Recipe& recipe : {dropped, llama_recipe(), adapters}) {
    const Training alone = train_on(recipe_for(recipe, {}), 20);
    for (const Mesh& mesh :
         {Mesh{.cp = 2}, Mesh{.cp = 6}, Mesh{.cp = 3, .zero = 1}, Mesh{.dp = 2, .cp = 2}}) {
      SCOPED_TRACE(fmt::format("{} {}", recipe.model.name, text_of(mesh)));
      expect_same(train_on(recipe_for(recipe, mesh), 20), alone);
    }
  }
}

// Longer than the tiles of attention, and not a multiple of them.
TEST(ContextParallel, LongSequences) {
  spec::Recipe recipe = llama_recipe();
  recipe.model.context = 400;
  const auto on = [&](const Mesh& mesh) {
    spec::Recipe out = recipe_for(recipe, mesh, 396);
    out.batch = {2, 2 / mesh.dp, 396};
    return out;
  };
  const Training alone = train_on(on({}), 2);
  for (const Mesh& mesh : {Mesh{.cp = 2}, Mesh{.cp = 3}, Mesh{.dp = 2, .cp = 2}}) {
    SCOPED_TRACE(text_of(mesh));
    expect_same(train_on(on(mesh), 2), alone);
  }
}

TEST(ContextParallel, ExpertsSeeTheSameSequences) {
  for (spec::Recipe recipe : {mixed_moe_recipe(), capacity_recipe()}) {
    recipe.model.moe.experts = 6;
    RoutingRecord routing;
    const Training alone = train_on(recipe_for(recipe, {}), 20, {}, routing.recorder());
    for (const Mesh& mesh :
         {Mesh{.cp = 2}, Mesh{.cp = 3, .ep = 3}, Mesh{.dp = 2, .cp = 2, .ep = 2},
          Mesh{.dp = 2, .cp = 3, .ep = 2, .zero = 1}, Mesh{.dp = 3, .cp = 2, .ep = 6}}) {
      SCOPED_TRACE(fmt::format("{} {}", recipe.model.name, text_of(mesh)));
      expect_same(train_on(recipe_for(recipe, mesh), 20, {}, routing.player()), alone);
    }
  }
}

// Two sequences of documents that end within chunks and at their edges.
TEST(ContextParallel, PackedDocuments) {
  for (const spec::Recipe& base : {gpt_recipe(), llama_recipe(), mixed_moe_recipe()}) {
    std::vector<int32_t> positions, starts;
    for (const int32_t length : {5, 1, 6, 2, 4, 3, 3}) {
      for (int32_t i = 0; i < length; ++i) {
        positions.push_back(i);
        starts.push_back(static_cast<int32_t>((positions.size() - 1) % 12) - i);
      }
    }
    RoutingRecord routing;
    Tensors alone;
    for (const Mesh& mesh : {Mesh{}, Mesh{.cp = 2}, Mesh{.cp = 3}, Mesh{.dp = 2, .cp = 2},
                             Mesh{.tp = 2, .cp = 2}, Mesh{.cp = 6, .zero = 3}}) {
      if (base.model.heads % mesh.tp != 0) continue;
      SCOPED_TRACE(base.model.name + " " + text_of(mesh));
      spec::Recipe recipe = recipe_for(base, mesh);
      recipe.batch = {8, 2, 12};
      recipe.data.packing = spec::Packing::documents;
      Tensors gradients;
      std::mutex mutex;
      on_ranks(recipe, [&](const parallel::Ranks& ranks) {
        Trainer trainer(recipe, ranks);
        (mesh.world() == 1 ? routing.recorder() : routing.player())(trainer);
        trainer.initialize();
        RankBatches batches(recipe, ranks.at.dp);
        const BatchSource source = batches.step(0);
        trainer.gradients([&] {
          BatchView view = source();
          view.positions = positions.data();
          view.starts = starts.data();
          return view;
        });
        const std::lock_guard lock(mutex);
        EXPECT_EQ(gather(trainer, trainer.state().gradients(), gradients), 0);
      });
      if (mesh.world() == 1) alone = gradients;
      EXPECT_LT(gradient_error(gradients, alone), 1e-5);
    }
  }
}

TEST(ContextParallel, MistakesAreFound) {
  const spec::Recipe recipe = llama_recipe();
  const Training alone = train_on(recipe_for(recipe, {}), 1);
  const auto error = [&](const Mesh& mesh, const Sabotage& sabotage) {
    return gradient_error(train_on(recipe_for(recipe, mesh), 1, sabotage).gradients,
                          alone.gradients);
  };
  const Mesh mesh = {.cp = 2};
  EXPECT_LT(error(mesh, {}), 1e-5);
  // Every rank attends to its own keys only.
  EXPECT_GT(error(mesh, {[](parallel::Ranks& ranks) { ranks.layers.cp = nullptr; }, {}}), 1e-2);
  // Gradients of one rank's positions only.
  EXPECT_GT(error(mesh, {[](parallel::Ranks& ranks) { ranks.replicas = nullptr; }, {}}), 1e-2);
  // The other rank's chunks: masks at the edges of blocks are then wrong.
  EXPECT_GT(error(mesh, {[](parallel::Ranks& ranks) { ranks.at.cp = 1 - ranks.at.cp; }, {}}), 1e-2);
}

TEST(ContextParallel, RecomputationChangesNoBit) {
  spec::Recipe recipe = recipe_for(llama_recipe(), {.cp = 3});
  recipe.model.dropout = 0.1;
  const Training plain = train_on(recipe, 2);
  for (const spec::Parts parts : {spec::kPartAttention, spec::kPartCore, spec::kPartNorms}) {
    recipe.recompute = {spec::RecomputeMode::selective, parts, 0};
    EXPECT_EQ(train_on(recipe, 2).state, plain.state);
  }
  recipe.recompute = {spec::RecomputeMode::full, 0, 0};
  EXPECT_EQ(train_on(recipe, 2).state, plain.state);
}

TEST(ContextParallel, InTheComputeType) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    const Training alone = train_on(recipe_for(recipe, {}), 10);
    const Training together = train_on(recipe_for(recipe, {.cp = 3, .zero = 1}), 10);
    const Training again = train_on(recipe_for(recipe, {.cp = 3, .zero = 1}), 10);
    EXPECT_EQ(together.disagreements, 0);
    EXPECT_EQ(together.state, again.state);
    for (size_t i = 0; i < together.losses.size(); ++i) {
      EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 2e-2) << "step " << i;
    }
  }
}

TEST(ContextParallel, SequencesThatDoNotDivideAreAnError) {
  spec::Recipe recipe = recipe_for(llama_recipe(), {.cp = 4}, 12);
  try {
    spec::validate(recipe);
    FAIL() << "12 tokens are 8 chunks";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("batch.sequence: 12"), std::string::npos) << text;
    EXPECT_NE(text.find("nearest: "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tutti::train
