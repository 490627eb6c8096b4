// The tiny models of tests/families on several ranks: gradients of the first step and ten losses
// are those of one rank.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "tutti/train/testing/family_models.h"
#include "tutti/train/testing/layouts.h"

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
    const bool whole =
        family_recipe(family).model.query_key_norm == spec::QueryKeyNorm::whole;  // no tp
    std::vector<Mesh> meshes = {{.dp = 2}, {.pp = 2}, {.cp = 2}};
    if (whole) {
      meshes.push_back({.pp = 2, .cp = 2});
      meshes.push_back({.dp = 2, .cp = 2, .zero = 3});
    } else {
      meshes.push_back({.tp = 2});
      meshes.push_back({.dp = 2, .tp = 2, .zero = 3});
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
  return recipe;
}

const Training& family_alone(const std::string& family) {
  static std::map<std::string, Training> made;
  const auto [found, is_new] = made.try_emplace(family);
  if (is_new) found->second = train_on(on_mesh(family, {}, 2), kFamilySteps);
  return found->second;
}

class FamilyLayout : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyLayout, IsAsOneRank) {
  const auto& [family, mesh] = GetParam();
  expect_same(train_on(on_mesh(family, mesh, 1), kFamilySteps), family_alone(family));
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
