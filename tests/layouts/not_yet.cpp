#include "tests/layouts/not_yet.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::train::testing {
namespace {

struct NotYet {
  const char* what;
  bool (*is)(const spec::Recipe& recipe);
};

constexpr NotYet kNotYet[] = {
    {"zero bubble with recomputation and ZeRO 3",
     [](const spec::Recipe& recipe) {
       return recipe.parallel.pp > 1 && recipe.parallel.pipeline == spec::Pipeline::zero_bubble &&
              recipe.recompute.mode != spec::RecomputeMode::none && recipe.parallel.zero == 3;
     }},
    {"gpipe with ZeRO 2 or 3 and several micro-batches",
     [](const spec::Recipe& recipe) {
       return recipe.parallel.pipeline == spec::Pipeline::gpipe && recipe.parallel.zero >= 2 &&
              recipe.batch.global > recipe.batch.micro * recipe.parallel.dp;
     }},
    {"adapters beside divided experts with ZeRO 3",
     [](const spec::Recipe& recipe) {
       return recipe.lora.enabled() && recipe.parallel.ep > 1 && recipe.parallel.zero == 3;
     }},
};

}  // namespace

std::optional<std::string> not_yet(const spec::Recipe& recipe) {
  for (const NotYet& one : kNotYet) {
    if (one.is(recipe)) return one.what;
  }
  return std::nullopt;
}

std::optional<std::string> refusal(const spec::Recipe& recipe) {
  try {
    spec::check_executable(recipe, recipe.parallel.world());
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

bool is_to_be_tried(const spec::Recipe& recipe, const std::string& name) {
  const std::optional<std::string> listed = not_yet(recipe);
  const std::optional<std::string> refused = refusal(recipe);
  EXPECT_EQ(listed.has_value(), refused.has_value())
      << name << ": "
      << (refused ? "refused, and not in the list: " + *refused
                  : "trains, and is in the list of those that do not: " + listed.value_or(""));
  if (refused && listed) fmt::print("not yet: {} ({})\n", name, *listed);
  return !refused;
}

}  // namespace tutti::train::testing
