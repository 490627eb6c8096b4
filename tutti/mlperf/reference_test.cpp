#include "tutti/mlperf/reference.h"

#include <gtest/gtest.h>

#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

const catalog::Benchmark& benchmark(const char* name) {
  return *catalog::find_benchmark(benchmarks(), name);
}

struct PublishedReference {
  const char* benchmark;
  const char* ruleset;
  double batch;
  double mean;
  double deviation;
  double least;
  bool pruned;
};

// As mlcommons/logging 7bbf792 computes them (rcp_checker), in samples; it bisects to 1e-4 tokens.
TEST(Reference, MeansAndLimitsAsPublished) {
  const PublishedReference all[] = {
      {"gpt3", "4.0.0", 1536, 1195376640.0 / 2048, 45174036.582447 / 2048, 1076517411.4733 / 2048,
       true},
      {"gpt3", "4.0.0", 2048, 577536, 12288, 1116578914.08986 / 2048, false},
      {"gpt3", "4.0.0", 8192, 1623195648.0 / 2048, 23726566.406063 / 2048, 1560767722.75877 / 2048,
       false},
      {"gpt3", "4.1.0", 6144, 688128, 0, 688128, false},
      {"llama2_70b_lora", "4.1.0", 8, 3178.66666667, 299.913587555, 2960.63396168, false},
      {"llama2_70b_lora", "4.1.0", 32, 6037.33333333, 323.56415129, 5802.10702721, true},
      {"llama2_70b_lora", "5.1.0", 128, 11264, 844.8, 10649.8429985, false},
      {"llama31_405b", "5.0.0", 1008, 324576, 0, 324576, true},
      {"llama31_405b", "5.0.0", 4608, 495360, 21722.320318, 438205.527421, true},
      {"llama31_405b", "5.0.0", 9216, 691200, 37624.1624491, 592205.549665, false},
      {"llama31_405b", "5.1.0", 4608, 493056, 14077.6725349, 456015.668334, false},
      {"llama31_405b", "6.0.0", 1152, 313344, 10641.7201617, 285344.141124, false},
      {"llama31_8b", "6.1.0", 128, 344746.666667, 24352.2615492, 327042.935566, false},
      {"llama2_70b_lora", "6.1.0", 16, 4032, 411.346277484, 3732.95737123, false},
      {"gpt_oss_20b", "6.0.0", 16, 194560, 8034.32253273, 188719.167249, false},
      {"gpt_oss_20b", "6.0.0", 32, 234837.333333, 7673.85354043, 229258.55621, true},
      {"gpt_oss_20b", "6.1.0", 64, 301056, 14783.9501298, 290308.288671, false},
      {"deepseekv3_671b", "6.0.0", 15360, 725760, 15360, 685345.684864, false},
      {"deepseekv3_671b", "6.0.0", 16384, 765952, 11258.827095, 736328.446234, false},
      {"deepseekv3_671b", "6.1.0", 18432, 861696, 14077.6725349, 824655.668327, false},
      {"llama31_8b", "5.1.0", 96, 278640, 11417.4838559, 270339.659426, false},
  };
  for (const PublishedReference& wanted : all) {
    const catalog::Benchmark& of = benchmark(wanted.benchmark);
    const auto points =
        reference_means(*catalog::find_reference_set(of, wanted.ruleset), of.runs_per_result);
    bool found = false;
    for (const ReferenceMean& point : points) {
      if (point.batch != wanted.batch) continue;
      found = true;
      EXPECT_NEAR(point.mean, wanted.mean, 1e-4) << wanted.benchmark << wanted.batch;
      EXPECT_NEAR(point.deviation, wanted.deviation, 1e-3) << wanted.benchmark << wanted.batch;
      EXPECT_NEAR(point.least, wanted.least, 1e-3) << wanted.benchmark << wanted.batch;
      EXPECT_EQ(point.pruned, wanted.pruned) << wanted.benchmark << wanted.batch;
    }
    EXPECT_TRUE(found) << wanted.benchmark << wanted.batch;
  }
}

TEST(Reference, InterpolatedLimitsAsPublished) {
  const auto limit = [](const char* name, const char* ruleset, double batch) {
    return test_reference(benchmark(name), ruleset, batch, 1e9);
  };
  const ReferenceTest gpt3 = limit("gpt3", "4.0.0", 2304);
  EXPECT_NEAR(gpt3.reference_samples, 1189085184.0 / 2048, 1e-6);
  EXPECT_NEAR(gpt3.least_samples, 1137798675.025766 / 2048, 1e-3);
  const ReferenceTest lora = limit("llama2_70b_lora", "4.1.0", 64);
  EXPECT_NEAR(lora.reference_samples, 7131.428571428572, 1e-6);
  EXPECT_NEAR(lora.least_samples, 6705.382394109453, 1e-3);
  const ReferenceTest small = limit("llama31_8b", "5.1.0", 24);
  EXPECT_NEAR(small.least_samples, 165862.48577547073, 1e-3);
  EXPECT_EQ(small.basis, "between 16 and 32");
}

TEST(Reference, PassScaleFail) {
  const catalog::Benchmark& lora = benchmark("llama2_70b_lora");
  const auto test = [&](double batch, double samples) {
    return test_reference(lora, "4.0.0", batch, samples);
  };
  EXPECT_TRUE(test(8, 3200).pass);
  EXPECT_EQ(test(8, 3200).scale, 1);
  EXPECT_TRUE(test(8, 3000).pass);
  EXPECT_DOUBLE_EQ(test(8, 3000).scale, 3178.0 / 3000 + 2.0 / 3 / 3000);
  EXPECT_FALSE(test(8, 2900).pass);
  EXPECT_EQ(test(8, 2900).scale, 1);
  // Below the smallest point: compared with it. Above the largest: unknown.
  EXPECT_TRUE(test(4, 3200).pass);
  EXPECT_FALSE(test(4, 2900).pass);
  EXPECT_FALSE(test(256, 20000).known);
  EXPECT_FALSE(test_reference(lora, "3.0.0", 8, 3200).known);
  // A mean that equals the reference passes where the reference has no spread.
  EXPECT_TRUE(test_reference(benchmark("llama31_405b"), "5.0.0", 1152, 322'560).pass);
}

TEST(Reference, AllowanceOf405B) {
  // v5.0 results at 276,480 samples were published with the factor 1.1667.
  const ReferenceTest test = test_reference(benchmark("llama31_405b"), "5.0.0", 1152, 276'480);
  EXPECT_TRUE(test.pass);
  EXPECT_NEAR(test.scale, 1.1667, 1e-4);
  EXPECT_EQ(test.least_samples, 322'560 - 46'080);
  EXPECT_FALSE(test_reference(benchmark("llama31_405b"), "5.0.0", 1152, 276'479).pass);
}

}  // namespace
}  // namespace tutti::mlperf
