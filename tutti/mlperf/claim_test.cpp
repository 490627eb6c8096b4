#include "tutti/mlperf/claim.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/mlperf/claim_text.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

const ClaimBasis& basis() {
  static const ClaimBasis all = [] {
    FileSystem& files = posix_file_system();
    const std::string folder = TUTTI_SOURCE_DIR "/catalog";
    return ClaimBasis{catalog::load_benchmarks(files, folder),
                      catalog::load_catalog(files, {folder}),
                      catalog::load_published(files, {folder + "/published"})};
  }();
  return all;
}

Claim read_claim(const std::string& text) {
  Claim claim;
  read_claim(text, basis(), claim);
  return claim;
}

ClaimAssessment assess(const std::string& text) { return assess_claim(read_claim(text), basis()); }

std::string error_of(const std::string& text) {
  try {
    read_claim(text);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ClaimText, Forms) {
  const Claim short_form = read_claim("175B 1024 H100 9.87min");
  EXPECT_EQ(short_form.benchmark, "gpt3");
  EXPECT_EQ(short_form.accelerators, 1024);
  EXPECT_EQ(short_form.chip, "H100");
  EXPECT_EQ(short_form.minutes, 9.87);
  EXPECT_FALSE(short_form.cost_usd || short_form.speedup);

  const Claim prose = read_claim("Llama 3.1 405B on 5,120 NVIDIA GB200s in 1.5 hours, for $1.2M.");
  EXPECT_EQ(prose.benchmark, "llama31_405b");
  EXPECT_EQ(prose.accelerators, 5120);
  EXPECT_EQ(prose.chip, "GB200");
  EXPECT_EQ(prose.minutes, 90);
  EXPECT_EQ(prose.cost_usd, 1.2e6);

  const Claim factor = read_claim("70B LoRA 8xH200 2.3x faster");
  EXPECT_EQ(factor.benchmark, "llama2_70b_lora");
  EXPECT_EQ(factor.accelerators, 8);
  EXPECT_EQ(factor.chip, "H200");
  EXPECT_EQ(factor.speedup, 2.3);

  EXPECT_EQ(read_claim("8x B200").accelerators, 8);
  EXPECT_EQ(read_claim("28% faster").speedup, 1.28);
  EXPECT_EQ(read_claim("$50,000").cost_usd, 50'000);
  EXPECT_EQ(read_claim("50k USD").cost_usd, 50'000);
  EXPECT_EQ(read_claim("90 seconds").minutes, 1.5);
}

TEST(ClaimText, Contradictions) {
  EXPECT_NE(error_of("175B 8B").find("the model twice"), std::string::npos);
  EXPECT_NE(error_of("8 H100 16 H100").find("accelerators twice"), std::string::npos);
  EXPECT_NE(error_of("8 H100 and B200").find("the chip twice"), std::string::npos);
  EXPECT_NE(error_of("175B on 128 nodes").find("how many accelerators"), std::string::npos);
  EXPECT_NE(error_of("1.5x H100").find("no number of accelerators"), std::string::npos);
}

TEST(ClaimTest, TooFastForThePeakIsImpossible) {
  const ClaimAssessment a = assess("175B 1024 H100 9.87min");
  EXPECT_EQ(a.verdict, Verdict::impossible);
  // 6 x 175e9 x 589,824 x 2048 tokens over 1,024 x 592.2 s.
  EXPECT_EQ(a.samples_to_target, 589'824);
  EXPECT_NEAR(a.needed_tflops, 6 * 175e9 * 589'824 * 2048 / (1024 * 592.2) / 1e12, 1e-6);
  EXPECT_NEAR(a.needed_tflops, 2091.6, 0.1);
  EXPECT_EQ(a.peak_tflops, 1979);
  EXPECT_GT(a.least_tflops, a.peak_tflops);
  EXPECT_LT(a.least_tflops, a.needed_tflops);
  EXPECT_EQ(a.nearest.size(), 5U);
}

TEST(ClaimTest, PublishedResultsArePossible) {
  // Every row of the catalog, claimed as it was published.
  for (const catalog::PublishedResult& row : basis().published) {
    const catalog::Chip* chip = find_chip(basis().catalog, row.accelerator);
    if (chip == nullptr) continue;
    const ClaimAssessment a =
        assess_claim({row.benchmark, row.accelerators, chip->name, row.minutes, {}, {}}, basis());
    EXPECT_EQ(a.verdict, Verdict::possible) << row.source << ": " << a.sentence;
    EXPECT_LT(a.best_tflops.value(), a.peak_tflops) << row.source;
  }
}

TEST(ClaimTest, BetweenPublishedAndPeakIsNeverSeen) {
  const ClaimAssessment a = assess("175B 1024 H100 15 min");
  EXPECT_EQ(a.verdict, Verdict::never_seen);
  EXPECT_GT(a.needed_tflops, *a.best_tflops);
  EXPECT_LT(a.needed_tflops, a.peak_tflops);
  EXPECT_EQ(assess("175B 1024 H100 40 min").verdict, Verdict::possible);
  // More accelerators at the same rate each than any published result had.
  EXPECT_EQ(assess("175B 100000 H100 0.42 min").verdict, Verdict::never_seen);
}

TEST(ClaimTest, CostAndSpeedup) {
  const ClaimAssessment a = assess("175B 1024 H100 40 min $1000");
  // 1,024 x 40 / 60 hours between spot and on demand.
  EXPECT_NEAR(*a.claimed_usd_per_hour, 1000 / (1024 * 40 / 60.0), 1e-9);
  ASSERT_TRUE(a.cost_low_usd && a.cost_high_usd);
  EXPECT_LT(*a.cost_low_usd, *a.cost_high_usd);
  const ClaimAssessment faster = assess("175B 1024 H100 2x");
  EXPECT_EQ(faster.verdict, Verdict::never_seen);
  EXPECT_NEAR(faster.needed_tflops, 2 * *faster.best_tflops, 1e-6);
  EXPECT_THROW(assess_claim({"gpt3", 8, "TPU-v9", 10.0, {}, {}}, basis()), Error);
  EXPECT_THROW(assess_claim({"resnet", 8, "H100", 10.0, {}, {}}, basis()), Error);
}

TEST(ClaimTest, ChipsInProductNames) {
  const auto name = [](const char* product) {
    const catalog::Chip* chip = find_chip(basis().catalog, product);
    return chip == nullptr ? std::string() : chip->name;
  };
  EXPECT_EQ(name("NVIDIA H100-SXM5-80GB"), "H100");
  EXPECT_EQ(name("GB200"), "GB200");
  EXPECT_EQ(name("B200-SXM-180GB"), "B200");
  EXPECT_EQ(name("AMD Instinct MI300X 192GB HBM3"), "MI300X");
  EXPECT_EQ(name("A100-SXM4-80GB"), "A100-80");
  EXPECT_EQ(name("Intel Gaudi2"), "");
}

}  // namespace
}  // namespace tutti::mlperf
