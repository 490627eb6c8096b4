#include "tutti/spec/mesh/fit_mesh.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

std::string error_of(Recipe recipe, int64_t ranks) {
  try {
    fit_mesh(recipe, ranks, "--nproc");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FitMesh, RemainingRanksAreDataParallel) {
  Recipe recipe = recipe_of("gpt2-124m", {"batch.global=8"});
  EXPECT_EQ(recipe.batch.micro, 8);
  const auto changes = fit_mesh(recipe, 4, "--nproc");
  EXPECT_EQ(recipe.parallel.dp, 4);
  EXPECT_EQ(recipe.batch.micro, 2);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0], "dp 4 (from --nproc)");
  EXPECT_EQ(changes[1], "micro-batch 2 (of 2 sequences per rank and step)");
  EXPECT_TRUE(fit_mesh(recipe, 4, "--nproc").empty());
}

TEST(FitMesh, AMicroBatchNeverGrows) {
  Recipe recipe = recipe_of("gpt2-124m", {"batch.global=12", "batch.micro=4"});
  fit_mesh(recipe, 2, "--nproc");
  EXPECT_EQ(recipe.batch.micro, 3);  // of six
  fit_mesh(recipe, 1, "--nproc");
  EXPECT_EQ(recipe.batch.micro, 3);
}

TEST(FitMesh, AShardedRunGoesOnAlone) {
  Recipe recipe = recipe_of("gpt2-124m", {"batch.global=8", "parallel.dp=4", "parallel.zero=1"});
  fit_mesh(recipe, 1, "--nproc");
  EXPECT_EQ(recipe.parallel, Mesh{});
}

// parallel.ep alone says how many ranks there are at least, and any multiple of it that there is.
TEST(FitMesh, ExpertParallelRanksReuseOtherAxes) {
  const std::vector<std::string> experts = {"batch.global=16", "model.moe.experts=4",
                                            "model.moe.top_k=2", "model.moe.expert_ffn=64"};
  const auto with = [&](std::vector<std::string> more, bool dp_is_open = false) {
    more.insert(more.begin(), experts.begin(), experts.end());
    return recipe_of("gpt2-124m", more, dp_is_open);
  };
  EXPECT_EQ(with({"parallel.ep=4"}).parallel.dp, 4);
  EXPECT_EQ(with({"parallel.ep=4", "parallel.cp=2"}).parallel.dp, 2);
  EXPECT_EQ(with({"parallel.ep=4", "parallel.dp=8"}).parallel.dp, 8);
  Recipe recipe = with({"parallel.ep=4"});
  fit_mesh(recipe, 8, "--nproc");
  EXPECT_EQ(mesh_text(recipe.parallel), "dp 8 ep 4");
  // What is written counts, unless the number of ranks decides.
  EXPECT_THROW(with({"parallel.ep=4", "parallel.dp=1"}), Error);
  recipe = with({"parallel.ep=4", "parallel.dp=1"}, true);
  fit_mesh(recipe, 4, "--nproc");
  EXPECT_EQ(mesh_text(recipe.parallel), "dp 4 ep 4");
  EXPECT_THROW(fit_mesh(recipe, 2, "--nproc"), Error);
}

TEST(FitMesh, WhatCannotBeNamesTheNearest) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=8"});
  EXPECT_FALSE(fits(recipe, 3));
  EXPECT_TRUE(fits(recipe, 8));
  const std::string error = error_of(recipe, 3);
  EXPECT_NE(error.find("--nproc: batch.global: 8 is not a multiple of dp 3"), std::string::npos)
      << error;
  EXPECT_NE(error.find("2 ranks as dp 2"), std::string::npos) << error;
  EXPECT_NE(error.find("4 ranks as dp 4"), std::string::npos) << error;
  const Recipe split = recipe_of("gpt2-124m", {"batch.global=8", "parallel.tp=2"});
  EXPECT_NE(error_of(split, 5).find("5 ranks are not a multiple of tp 2"), std::string::npos);
}

TEST(FitMesh, TextNamesWhatIsNotOne) {
  EXPECT_EQ(mesh_text({}), "dp 1");
  EXPECT_EQ(mesh_text({.dp = 2, .tp = 4, .pp = 3, .vpp = 2, .zero = 1}),
            "dp 2 tp 4 pp 3 vpp 2 zero 1");
}

}  // namespace
}  // namespace tutti::spec
