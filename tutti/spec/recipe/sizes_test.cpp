#include "tutti/spec/recipe/sizes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/schedule/schedule.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

constexpr const char* kSmall = R"(
model: {layers: 2, hidden: 24, heads: 4, vocabulary: 101, context: 16, positions: rope}
batch: {global: 4}
)";

std::string refusal(const std::vector<std::string>& overrides) {
  try {
    parse(kSmall, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  return "";
}

// Neither sums nor products of them leave 64 bits, and none is counted up to one by one.
TEST(RecipeSizes, ImplausibleSizesAreRefusedByKey) {
  const std::string most = fmt::format("{}", INT64_MAX);
  struct Case {
    const char* key;
    std::vector<std::string> overrides;
  };
  const std::vector<Case> cases = {
      {"parallel.dp", {"batch.micro=4294967296", "parallel.dp=4294967296"}},
      {"parallel.dp", {"batch.micro=1", "parallel.dp=16777216", "parallel.tp=2"}},
      {"parallel.tp", {"parallel.tp=4611686018427387904"}},
      {"parallel.cp", {"parallel.cp=4611686018427387905"}},
      {"parallel.pp", {"parallel.pp=" + most}},
      {"parallel.vpp", {"parallel.pp=2", "parallel.vpp=4294967296"}},
      {"parallel.ep", {"parallel.ep=" + most}},
      {"batch.global", {"batch.global=" + most, "batch.micro=1"}},
      {"batch.sequence", {"batch.sequence=" + most}},
      {"batch.micro", {"batch.sequence=1000000000"}},
      {"train.steps", {"train.steps=" + most}},
      {"schedule.start_step", {"schedule.start_step=" + most}},
      {"schedule.reference_batch", {"schedule.reference_batch=" + most, "schedule.warmup_steps=2"}},
      {"schedule.decay_steps", {"schedule.kind=wsd", "schedule.decay_steps=" + most}},
      {"precision.wide_first",
       {"precision=fp8", "precision.wide_first=" + most, "precision.wide_last=" + most}},
      {"model.layers", {"model.layers=1000000000000"}},
      {"model.vocabulary", {"model.vocabulary=1000000000000"}},
      {"model.hidden", {"model.hidden=1000000000", "model.ffn=24", "model.vocabulary=1000000000"}},
      {"optimizer.beta1", {"optimizer.beta1=0.9999999999"}},
      {"optimizer.beta2", {"optimizer.beta2=0.9999999999"}},
  };
  for (const Case& one : cases) {
    const std::string text = refusal(one.overrides);
    EXPECT_EQ(text.find(one.key), 0U)
        << fmt::format("{}", fmt::join(one.overrides, " ")) << ": " << text;
  }
  EXPECT_NE(refusal({"parallel.tp=1048576"}).find("nearest that does: 4"), std::string::npos);
}

TEST(RecipeSizes, TheLargestAreStillCounted) {
  const Recipe recipe = parse(kSmall, {"batch.global=16777216", "batch.micro=16777216",
                                       "batch.sequence=16", "train.steps=10000000000"});
  EXPECT_GT(memory_map(recipe).total_bytes(), 0);
  EXPECT_EQ(refusal({"parallel.dp=16777216", "batch.global=16777216"}), "");
}

// A number of samples that is never reached is not one that is always over.
TEST(RecipeSizes, EvaluationThatNeverComes) {
  const Recipe recipe = parse(kSmall, {fmt::format("evaluate.every_samples={}", INT64_MAX)});
  EXPECT_EQ(evaluation_interval(recipe), INT64_MAX / 4 + 1);
  EXPECT_EQ(evaluation_interval(parse(kSmall, {"evaluate.every_samples=8"})), 2);
  EXPECT_EQ(evaluation_interval(parse(kSmall, {"evaluate.every_samples=9"})), 3);
}

}  // namespace
}  // namespace tutti::spec
