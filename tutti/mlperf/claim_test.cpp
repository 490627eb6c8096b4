#include "tutti/mlperf/claim.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/catalog/chip_names.h"
#include "tutti/mlperf/claim_text.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

const ClaimBasis& basis() {
  static const ClaimBasis all = [] {
    FileSystem& files = posix_file_system();
    const std::string folder = TUTTI_SOURCE_DIR "/catalog";
    ClaimBasis basis{catalog::load_benchmarks(files, folder),
                     catalog::load_catalog(files, {folder}),
                     catalog::load_published(files, {folder + "/published"})};
    add_published_chips(files, folder, basis.catalog);
    return basis;
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

TEST(ClaimText, ReadsCountsTimesAndMultiwordNames) {
  EXPECT_EQ(read_claim("175B 1k H100 10 min").accelerators, 1000);
  EXPECT_EQ(read_claim("8B on one H100").accelerators, 1);
  EXPECT_EQ(read_claim("a single L40S").accelerators, 1);
  EXPECT_EQ(read_claim("one claim: 8 H100").accelerators, 8);
  const Claim clock = read_claim("405B, 8192 GB200, 7:04");
  EXPECT_DOUBLE_EQ(*clock.minutes, 7 + 4 / 60.0);
  EXPECT_EQ(clock.accelerators, 8192);
  EXPECT_DOUBLE_EQ(*read_claim("1:02:03").minutes, 62 + 3 / 60.0);
  EXPECT_FALSE(read_claim("7:60").minutes || read_claim("7:4").minutes);
  const Claim gaudi = read_claim("GPT-3 175B, 256 Gaudi 2, 223.9 min");
  EXPECT_EQ(gaudi.chip, "Gaudi2");
  EXPECT_EQ(gaudi.accelerators, 256);
  EXPECT_EQ(gaudi.minutes, 223.9);
  EXPECT_EQ(read_claim("4096 TPU v5e").chip, "TPU-v5e");
  EXPECT_EQ(read_claim("4096 TPU v5e").accelerators, 4096);
  EXPECT_EQ(read_claim("8x MI355X").chip, "MI355X");
  EXPECT_EQ(read_claim("512 Trillium chips").chip, "TPU-v6e");
  EXPECT_EQ(read_claim("9216 Ironwood").chip, "TPU-v7");
  EXPECT_EQ(read_claim("8 Gaudi3").chip, "Gaudi3");
}

// As the program itself prints them.
TEST(ClaimText, NamesOfPublishedResults) {
  for (const catalog::PublishedResult& row : basis().published) {
    const Claim claim =
        read_claim(fmt::format("405B, {} {} in 10 min", row.accelerators, row.accelerator));
    EXPECT_EQ(claim.accelerators, row.accelerators) << row.accelerator;
    EXPECT_EQ(claim.chip, catalog::find_chip(basis().catalog, row.accelerator)->name)
        << row.accelerator;
    EXPECT_EQ(claim.minutes, 10) << row.accelerator;
  }
  const Claim ultra = read_claim("72 NVIDIA Blackwell Ultra GPUs (GB300) in 3 min");
  EXPECT_EQ(ultra.accelerators, 72);
  EXPECT_EQ(ultra.chip, "GB300");
  EXPECT_EQ(read_claim("in 10 steps on H100").accelerators, 0);
}

// Cards are slower than modules of the same name.
TEST(ClaimText, CardsAreNoModules) {
  EXPECT_EQ(read_claim("8 H200-NVL").chip, "H200-NVL");
  EXPECT_EQ(read_claim("8 H100 NVL").chip, "H100-NVL");
  EXPECT_EQ(read_claim("8 NVIDIA H100 PCIe").chip, "H100-PCIe");
  EXPECT_EQ(read_claim("8 NVIDIA H100 PCIe").accelerators, 8);
  EXPECT_EQ(read_claim("8 H100 GPUs (PCIe)").chip, "H100-PCIe");
  EXPECT_EQ(read_claim("PCIe: 8 H100").chip, "H100-PCIe");
  EXPECT_EQ(read_claim("72 GB200 NVL72").chip, "GB200");
  EXPECT_EQ(read_claim("8 H100 NVLink").chip, "H100");
  EXPECT_NE(error_of("8 B200 PCIe").find("the catalog has no B200 pcie"), std::string::npos)
      << error_of("8 B200 PCIe");
}

TEST(ClaimText, ThousandsMayBeBinary) {
  const Claim claim = read_claim("405B 8k GB200 7.07 min");
  EXPECT_EQ(claim.accelerators, 8000);
  EXPECT_EQ(claim.accelerators_or, 8192);
  EXPECT_EQ(read_claim("11.6k H100").accelerators_or, 0);
  EXPECT_EQ(read_claim("8000 H100").accelerators_or, 0);
  const ClaimAssessment published = assess("405B 8k GB200 7.07 min");
  EXPECT_EQ(published.accelerators, 8192);
  ASSERT_TRUE(published.published_by);
  EXPECT_EQ(published.arithmetic.back(),
            "the number of accelerators is read as 8192; as 8000 it is never seen");
  const ClaimAssessment neither = assess("405B 8k GB200 5 min");
  EXPECT_EQ(neither.accelerators, 8000);
  EXPECT_EQ(neither.arithmetic.back(),
            "the number of accelerators is read as 8000; as 8192 it is never seen");
}

TEST(ClaimText, Contradictions) {
  EXPECT_NE(error_of("175B 8B").find("the model twice"), std::string::npos);
  EXPECT_NE(error_of("8 H100 16 H100").find("accelerators twice"), std::string::npos);
  EXPECT_NE(error_of("8 H100 and B200").find("the chip twice"), std::string::npos);
  EXPECT_NE(error_of("175B on 128 nodes").find("how many accelerators"), std::string::npos);
  EXPECT_NE(error_of("405B 8 H20 1000 min").find("'h20' is no chip of the catalog"),
            std::string::npos)
      << error_of("405B 8 H20 1000 min");
  EXPECT_EQ(read_claim("405B in fp8 on 8 H100").chip, "H100");
  EXPECT_NE(error_of("1.5x H100").find("not a number of accelerators"), std::string::npos);
}

TEST(ClaimTest, FasterThanPeakIsImpossible) {
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
    const catalog::Chip* chip = catalog::find_chip(basis().catalog, row.accelerator);
    ASSERT_NE(chip, nullptr) << row.accelerator << ": " << row.source;
    Claim claim;
    claim.benchmark = row.benchmark;
    claim.accelerators = row.accelerators;
    claim.chip = chip->name;
    claim.minutes = row.minutes;
    const ClaimAssessment a = assess_claim(claim, basis());
    EXPECT_EQ(a.verdict, Verdict::possible) << row.source << ": " << a.sentence;
    EXPECT_LT(a.best_tflops.value(), a.peak_tflops) << row.source;
  }
}

// Press releases round: 3.444 is said as 3.44, 3.4 and, in seconds, 3:27.
TEST(ClaimTest, RoundedFiguresMatchPublishedOnes) {
  for (const char* text :
       {"175B 11616 H100 3.444 min", "175B 11616 H100 3.44 min", "175B 11616 H100 3.4 min",
        "175B 11616 H100 3:27", "405B 5120 GB200 10 min", "405B 8192 GB200 7.07 min",
        "405B 8192 GB200 7:04"}) {
    const ClaimAssessment a = assess(text);
    EXPECT_EQ(a.verdict, Verdict::possible) << text;
    EXPECT_TRUE(a.published_by) << text << ": " << a.sentence;
  }
  EXPECT_EQ(assess("405B 8192 GB200 7.07 min").published_by->result.round, "v6.0");
  for (const char* text :
       {"175B 11616 H100 3.43 min", "175B 11616 H100 3.3 min", "405B 8192 GB200 6.9 min"}) {
    EXPECT_FALSE(assess(text).published_by) << text;
  }
  EXPECT_DOUBLE_EQ(rounding_of("3.44"), 0.005);
  EXPECT_DOUBLE_EQ(rounding_of("10"), 0.2);  // no more than 2%
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
  Claim unknown;
  unknown.benchmark = "gpt3";
  unknown.accelerators = 8;
  unknown.chip = "TPU-v9";
  unknown.minutes = 10;
  EXPECT_THROW(assess_claim(unknown, basis()), Error);
  unknown.chip = "H100";
  unknown.benchmark = "resnet";
  EXPECT_THROW(assess_claim(unknown, basis()), Error);
}

TEST(ClaimTest, ChipsInProductNames) {
  const auto name = [](const char* product) {
    const catalog::Chip* chip = catalog::find_chip(basis().catalog, product);
    return chip == nullptr ? std::string() : chip->name;
  };
  EXPECT_EQ(name("NVIDIA H100-SXM5-80GB"), "H100");
  EXPECT_EQ(name("GB200"), "GB200");
  EXPECT_EQ(name("B200-SXM-180GB"), "B200");
  EXPECT_EQ(name("AMD Instinct MI300X 192GB HBM3"), "MI300X");
  EXPECT_EQ(name("A100-SXM4-80GB"), "A100-80");
  EXPECT_EQ(name("Intel Gaudi2"), "Gaudi2");
  EXPECT_EQ(name("Habana Gaudi2"), "Gaudi2");
  EXPECT_EQ(name("AMD Instinct MI325X 256GB HBM3E DLC"), "MI325X");
  EXPECT_EQ(name("TPU-trillium"), "TPU-v6e");
  EXPECT_EQ(name("Blackwell Ultra GPU (B300-SXM-270GB)"), "B300");
  EXPECT_EQ(name("Cerebras WSE-3"), "");
  EXPECT_EQ(name("H200-NVL-141GB"), "H200-NVL");
  EXPECT_EQ(name("NVIDIA H100 PCIe"), "H100-PCIe");
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3 NVLink"), "H100");
  EXPECT_EQ(name("B200 PCIe"), "");
  EXPECT_EQ(assess("70B LoRA 8 H200 NVL 30 min").peak_tflops, 1670.5);
  EXPECT_EQ(assess("70B LoRA 8 H200 NVL 30 min").peak_precision, "fp8");
  for (const char* chip : {"TPU v5e", "TPU v5p", "Trillium"}) {
    EXPECT_EQ(assess("175B 4096 " + std::string(chip) + " 40 min").peak_precision, "int8") << chip;
  }
}

}  // namespace
}  // namespace tutti::mlperf
