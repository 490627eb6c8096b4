// The tiny models of tests/families on several ranks: gradients of the first step and ten losses
// are those of one rank.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "tutti/train/testing/family_models.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/routing_record.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

constexpr int64_t kFamilySteps = 10;

struct FamilyCase {
  std::string family;
  Mesh mesh;
};

std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> all;
  for (const std::string& family : family_names()) {
    const spec::ModelConfig model = family_recipe(family).model;
    const bool whole = model.query_key_norm == spec::QueryKeyNorm::whole;  // no tp
    std::vector<Mesh> meshes = {{.dp = 2}, {.pp = 2}};
    const bool latent = model.attention == spec::Attention::latent;  // no cp
    if (!latent) meshes.push_back({.cp = 2});
    if (whole) {
      meshes.push_back({.pp = 2, .cp = 2});
      meshes.push_back({.dp = 2, .cp = 2, .zero = 3});
    } else {
      meshes.push_back({.tp = 2});
      meshes.push_back({.dp = 2, .tp = 2, .zero = 3});
    }
    if (model.moe.experts > 0) {
      meshes.push_back({.dp = 2, .ep = 2});
      meshes.push_back(whole ? Mesh{.dp = 2, .cp = 2, .ep = 2} : Mesh{.dp = 2, .tp = 2, .ep = 2});
    }
    for (const Mesh& mesh : meshes) all.push_back({family, mesh});
  }
  return all;
}

// Sequences of 16 tokens, longer than every window.
spec::Recipe on_mesh(const std::string& family, const Mesh& mesh, int64_t micro) {
  spec::Recipe recipe = family_recipe(family);
  recipe.parallel = mesh;
  recipe.threads = 1;
  recipe.batch = {12, micro, 16};
  recipe.model.ffn += recipe.model.ffn % 2;  // tp 2 divides it
  if (recipe.model.moe.experts > 0) {
    recipe.model.moe.balance_loss = 0.3;
    if (recipe.model.moe.scores == spec::RouterScores::softmax) recipe.model.moe.z_loss = 0.2;
  }
  return recipe;
}

// What one rank did, and what its routers chose: near-ties would turn out otherwise elsewhere.
struct FamilyAlone {
  RoutingRecord routing;
  Training training;
};
FamilyAlone& family_alone(const std::string& family) {
  static std::map<std::string, FamilyAlone> made;
  const auto [found, is_new] = made.try_emplace(family);
  FamilyAlone& one = found->second;
  if (is_new)
    one.training = train_on(on_mesh(family, {}, 2), kFamilySteps, {}, one.routing.recorder());
  return one;
}

class FamilyLayout : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyLayout, IsAsOneRank) {
  const auto& [family, mesh] = GetParam();
  FamilyAlone& alone = family_alone(family);
  const Training training =
      train_on(on_mesh(family, mesh, 1), kFamilySteps, {}, alone.routing.player());
  expect_same(training, alone.training);
}

std::string family_case(const ::testing::TestParamInfo<FamilyCase>& info) {
  std::string text = info.param.family + " " + text_of(info.param.mesh);
  for (char& letter : text) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return text;
}

INSTANTIATE_TEST_SUITE_P(Layouts, FamilyLayout, ::testing::ValuesIn(family_cases()), family_case);

}  // namespace
}  // namespace tutti::train
