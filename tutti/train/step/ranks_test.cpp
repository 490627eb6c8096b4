// Several ranks train as one: gradients, losses and checkpoints do not depend on the mesh. The
// ranks are threads of this process.
#include "tutti/parallel/ranks.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/base/testing/memory_file.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;

TEST(Ranks, GradientsAndLossesDoNotDependOnTheMesh) {
  spec::Recipe dropped = gpt_recipe();
  dropped.model.dropout = 0.1;
  for (const spec::Recipe& recipe :
       {gpt_recipe(), llama_recipe(), dropped, adapted(gpt_recipe())}) {
    const Training alone = train(recipe, {}, 20);
    for (const spec::Mesh mesh : {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 3, .zero = 1},
                                  spec::Mesh{.dp = 4, .zero = 1}, spec::Mesh{.dp = 6}}) {
      SCOPED_TRACE(
          fmt::format("{} dropout {} {}", recipe.model.name, recipe.model.dropout, text_of(mesh)));
      expect_same(train(recipe, mesh, 20), alone);
    }
  }
}

// What the comparison is for: each of these is found.
TEST(Ranks, MistakesAreFound) {
  const Training alone = train(gpt_recipe(), {}, 1);
  const Sabotage no_all_reduce = {[](parallel::Ranks& ranks) { ranks.replicas = nullptr; }, {}};
  const Sabotage repeats_samples = {{}, [](const parallel::Ranks&) { return int64_t{0}; }};
  for (const Sabotage& sabotage : {no_all_reduce, repeats_samples}) {
    const Training together = train(gpt_recipe(), {.dp = 2}, 1, sabotage);
    EXPECT_GT(gradient_error(together.gradients, alone.gradients), 1e-2);
  }
}

TEST(Ranks, InTheComputeTypeMastersAndMomentsAreSharded) {
  spec::Recipe recipe = llama_recipe();
  recipe.precision = spec::Precision::bf16;
  const Training alone = train(recipe, {}, 10);
  const Training whole = train(recipe, {.dp = 3}, 10);
  const Training sharded = train(recipe, {.dp = 3, .zero = 1}, 10);
  EXPECT_EQ(sharded.losses, whole.losses);  // the same sums in the same order
  EXPECT_EQ(sharded.state, whole.state);
  for (size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_NEAR(whole.losses[i] / alone.losses[i], 1, 2e-2) << "step " << i;
  }
}

// Ten steps on one mesh, saved by all ranks together, ten more on another.
TEST(Ranks, ACheckpointOfOneMeshIsContinuedOnAnother) {
  const spec::Recipe base = gpt_recipe();
  const Training undisturbed = train(base, {}, 20);
  for (const auto& [from, to] :
       std::vector<std::pair<spec::Mesh, spec::Mesh>>{{{.dp = 3, .zero = 1}, {.dp = 2, .zero = 1}},
                                                      {{.dp = 2}, {.dp = 6, .zero = 1}},
                                                      {{.dp = 4, .zero = 1}, {}},
                                                      {{.pp = 2}, {.dp = 2, .pp = 2, .zero = 1}},
                                                      {{.dp = 2, .pp = 2, .zero = 1}, {.dp = 3}}}) {
    SCOPED_TRACE(text_of(from) + " to " + text_of(to));
    MemoryFileSystem files;
    const Tensors saved = train_and_save(recipe_on(base, from), 10, files);
    load_and_go_on(recipe_on(base, to), 10, files, saved, undisturbed.losses);
  }
}

}  // namespace
}  // namespace tutti::train
