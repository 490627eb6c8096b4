#include "tutti/plan/target.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/plan/testing/systems.h"
#include "tutti_test_paths.h"

namespace tutti::plan {
namespace {

const catalog::Benchmark& benchmark(std::string_view name) {
  static const std::vector<catalog::Benchmark> all =
      catalog::load_benchmarks(posix_file_system(), std::string(TUTTI_SOURCE_DIR) + "/catalog");
  return *catalog::find_benchmark(all, name);
}

StepPrediction step_of(double seconds, double forward) {
  StepPrediction step;
  step.step_seconds = seconds;
  step.forward_seconds_per_micro_batch = forward;
  return step;
}

// Runs and evaluations start immediately.
Constants no_starts() {
  Constants constants = assumed_constants();
  constants[Constant::run_start_seconds] = 0;
  constants[Constant::evaluation_start_seconds] = 0;
  return constants;
}

spec::Recipe lora(const std::string& batch) {
  return recipe_of("llama2-70b", {"batch.global=" + batch, "batch.sequence=8192",
                                  "model.context=8192", "lora.rank=16", "batch.micro=1"});
}

// Batch 8: olympic mean of the reference 3,179 samples; evaluations every 384, all from the fourth.
TEST(Target, SamplesFollowTheReference) {
  const TargetForecast at =
      forecast_target(benchmark("llama2_70b_lora"), "", lora("8"), step_of(2, 0.5), no_starts());
  EXPECT_NEAR(at.samples, 3179, 1);
  EXPECT_EQ(at.interval_samples, 384);
  EXPECT_EQ(at.first_samples, 3072);
  EXPECT_EQ(at.last_samples, 3456);
  EXPECT_NEAR(at.evaluations, 3179.0 / 384 - 3, 0.01);
  // dp 1, micro-batch 1: 173 forward passes.
  EXPECT_NEAR(at.evaluation_seconds, 173 * 0.5, 1e-9);
  EXPECT_NEAR(at.work_seconds, 3179.0 / 8 * 2 + at.evaluations * 86.5, 3);
}

// Between two points; intervals are whole batches: 18 x 22 = 396.
TEST(Target, BatchesBetweenPointsAreInterpolated) {
  const TargetForecast at = forecast_target(benchmark("llama2_70b_lora"), "5.0.0", lora("18"),
                                            step_of(1, 0.1), no_starts());
  EXPECT_EQ(at.interval_samples, 396);
  // Means 4,032 at 16 and 6,037 at 32, each less half of 384; then half of 396.
  EXPECT_NEAR(at.samples, 4032 + (6037 - 4032) / 8.0 + 6, 2);
  EXPECT_NE(at.basis.find("16 and 32"), std::string::npos);
}

// Rows of catalog/published/mlperf_training.csv with a known layout, priced with the catalog's
// default constants of the generation: none of them was fitted on.
struct PublishedTarget {
  const char* benchmark;
  const char* model;
  const char* system;
  int64_t batch, micro, tp, pp, vpp, cp, dp;
  double minutes;
};
const PublishedTarget kPublished[] = {
    {"llama2_70b_lora", "llama2-70b", "dgx-h100", 8, 1, 4, 1, 1, 1, 2, 29.101},
    {"llama2_70b_lora", "llama2-70b", "dgx-h100", 8, 1, 4, 1, 1, 2, 2, 19.755},
    {"llama2_70b_lora", "llama2-70b", "dgx-h100", 8, 1, 4, 1, 1, 2, 8, 5.252},
    {"llama2_70b_lora", "llama2-70b", "dgx-h100", 64, 1, 4, 1, 1, 2, 64, 2.103},
    {"llama2_70b_lora", "llama2-70b", "dgx-h200", 8, 1, 1, 1, 1, 2, 4, 23.678},
    {"llama2_70b_lora", "llama2-70b", "dgx-h200", 8, 1, 4, 1, 1, 1, 8, 6.944},
    {"llama2_70b_lora", "llama2-70b", "dgx-b200", 8, 1, 1, 1, 1, 1, 8, 11.325},
    {"gpt3", "gpt3-175b", "superpod-h100", 2048, 2, 4, 8, 6, 1, 16, 56.869},
    {"gpt3", "gpt3-175b", "superpod-h100", 3072, 1, 4, 8, 6, 1, 24, 44.816},
    {"gpt3", "gpt3-175b", "superpod-h100", 3072, 1, 4, 8, 6, 1, 48, 23.611},
};

TEST(Target, PublishedResults) {
  const std::vector<Constants> sets =
      load_constants(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  PipelineSimulator simulator;
  std::vector<double> errors;
  for (const PublishedTarget& row : kPublished) {
    const catalog::Benchmark& target = benchmark(row.benchmark);
    const bool adapters = std::string_view(row.benchmark) == "llama2_70b_lora";
    std::vector<std::string> overrides = {"precision=fp8",
                                          "parallel.zero=1",
                                          fmt::format("model.context={}", target.sequence_tokens),
                                          fmt::format("batch.sequence={}", target.sequence_tokens),
                                          fmt::format("batch.global={}", row.batch),
                                          fmt::format("batch.micro={}", row.micro),
                                          fmt::format("parallel.tp={}", row.tp),
                                          fmt::format("parallel.pp={}", row.pp),
                                          fmt::format("parallel.vpp={}", row.vpp),
                                          fmt::format("parallel.cp={}", row.cp),
                                          fmt::format("parallel.dp={}", row.dp)};
    if (adapters) {
      overrides.emplace_back("lora={rank: 16, alpha: 32, dropout: 0.1, targets: [qkv, output]}");
    }
    const spec::Recipe recipe = recipe_of(row.model, overrides);
    const catalog::System& system = shipped().system(row.system);
    const Constants constants = constants_for(sets, system.chip, "");
    Predictor predictor(system, constants, simulator);
    const StepPrediction step = predictor.step(recipe, spec::find_profile("megatron-te"));
    const TargetForecast forecast = forecast_target(target, "", recipe, step, constants);
    const double minutes = forecast.work_seconds / 60;
    errors.push_back(std::abs(minutes / row.minutes - 1));
    std::printf("%-16s %-13s %5lld GPUs batch %4lld: %7.2f min, published %7.2f, %+.0f%%\n",
                row.benchmark, row.system, static_cast<long long>(recipe.parallel.world()),
                static_cast<long long>(row.batch), minutes, row.minutes,
                100 * (minutes / row.minutes - 1));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.15);
  EXPECT_LT(errors.back(), 0.45);
}

TEST(Target, ErrorsNameWhatIsAccepted) {
  EXPECT_THROW(
      forecast_target(benchmark("llama2_70b_lora"), "", lora("256"), step_of(1, 1), no_starts()),
      Error);
  EXPECT_THROW(
      forecast_target(benchmark("llama2_70b_lora"), "1.0", lora("8"), step_of(1, 1), no_starts()),
      Error);
  EXPECT_THROW(forecast_target(benchmark("gpt3"), "", lora("2048"), step_of(1, 1), no_starts()),
               Error);
}

}  // namespace
}  // namespace tutti::plan
