#include "tutti/plan/constants.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/plan/testing/rows.h"

namespace tutti::plan {
namespace {

Constants set_of(const std::string& generation, const std::string& software, double error) {
  Constants set = assumed_constants();
  set.name = generation + "/" + software;
  set.chip_generation = generation;
  set.software = software;
  set.error = error;
  set.interval = 0.1;
  set.far_interval = 0.2;
  return set;
}

const std::vector<Constants>& some_sets() {
  static const std::vector<Constants> sets = {set_of("blackwell", "simulator-1.2", 0.01),
                                              set_of("blackwell", "bridge-25.11", 0.05),
                                              set_of("blackwell", "bridge-26.04", 0.3),
                                              set_of("hopper", "bridge-25.11", 0.08),
                                              set_of("hopper", "titan-1", 0.02),
                                              set_of("blackwell", "any", 0),
                                              set_of("any", "any", 0)};
  return sets;
}

std::string chosen(const std::string& generation, const std::string& software, Nearness expected) {
  Nearness nearness = Nearness::assumed;
  const Constants* found = find_constants(some_sets(), generation, software, &nearness);
  EXPECT_EQ(nearness, expected) << generation << " " << software;
  return found == nullptr ? "" : found->name;
}

// Never the set with the least error of unrelated software.
TEST(Constants, NearestSetIsOfTheFamilyThenTheGeneration) {
  EXPECT_EQ(chosen("blackwell", "bridge-25.11", Nearness::exact), "blackwell/bridge-25.11");
  EXPECT_EQ(chosen("blackwell", "bridge-26.06", Nearness::release), "blackwell/bridge-26.04");
  EXPECT_EQ(chosen("blackwell", "bridge-25.12", Nearness::release), "blackwell/bridge-25.11");
  EXPECT_EQ(chosen("blackwell", "titan-2", Nearness::family), "hopper/titan-1");
  EXPECT_EQ(chosen("blackwell", "", Nearness::generation), "blackwell/any");
  EXPECT_EQ(chosen("blackwell", "unheard-of", Nearness::generation), "blackwell/any");
  EXPECT_EQ(chosen("ampere", "", Nearness::pooled), "any/any");
  EXPECT_EQ(chosen("ampere", "bridge-25.11", Nearness::family), "blackwell/bridge-25.11");
  // Without a pooled set, as on a calibrated machine, the best set of the generation.
  EXPECT_EQ(chosen("hopper", "", Nearness::generation), "hopper/titan-1");
  EXPECT_EQ(find_constants({}, "hopper", ""), nullptr);
}

TEST(Constants, IntervalGrowsWithTheDistance) {
  catalog::Chip chip = shipped_catalog().chip("B200");
  EXPECT_EQ(constants_for(some_sets(), chip, "bridge-25.11").interval, 0.1);
  EXPECT_EQ(constants_for(some_sets(), chip, "bridge-26.06").interval, 0.2);
  EXPECT_EQ(constants_for({}, chip, "").interval, kAssumedInterval);
  EXPECT_EQ(constants_for({}, chip, "").nearness, Nearness::assumed);
  // From other chips, limited to this chip's measured ratios.
  chip.generation = "other";
  chip.best_product_ratio = 0.5;
  EXPECT_EQ(constants_for(some_sets(), chip, "")[Constant::gemm_ratio], 0.5);
}

// From other chips, scaled by the measured ratios of this chip and theirs.
TEST(Constants, AreTransferredToOtherChips) {
  catalog::Chip hopper = shipped_catalog().chip("H100");
  catalog::Chip other = hopper;
  other.generation = "other";
  other.best_product_ratio = 0.6;
  other.best_fp8_product_ratio = 0.8;
  other.exponentials_per_second *= 2;
  Constants set = set_of("hopper", "titan-1", 0.02);
  set[Constant::gemm_ratio] = 0.7;
  set[Constant::gemm_fp8_ratio] = 0.6;
  set.limits = mean_limits({&hopper, &hopper});
  const Constants carried = constants_for({set}, other, "titan-1");
  EXPECT_EQ(carried.nearness, Nearness::family);
  EXPECT_DOUBLE_EQ(carried[Constant::gemm_ratio], carried_product_ratio(0.7, 0.8, 0.6));
  EXPECT_DOUBLE_EQ(carried[Constant::gemm_fp8_ratio], carried_product_ratio(0.6, 0.71, 0.8));
  EXPECT_DOUBLE_EQ(carried[Constant::gemm_fp4_ratio] / set[Constant::gemm_fp4_ratio],
                   carried[Constant::gemm_fp8_ratio] / 0.6);
  EXPECT_DOUBLE_EQ(
      carried[Constant::attention_ratio],
      set[Constant::attention_ratio] * attention_gain(set.limits, limits_of(other), false));
  EXPECT_EQ(constants_for({set}, hopper, "titan-1").value, set.value);
  MemoryFileSystem files;
  files.create_directories("c/constants");
  write_file_atomic(files, "c/constants/a.yaml", to_yaml(set, "test", "2026-11-23"));
  EXPECT_NEAR(load_constants(files, {"c"})[0].limits.softmax, set.limits.softmax, 1e-5);
}

// Intervals measured on held-out rows grow with the rest of a step; those of a set's own rows do
// not.
TEST(Constants, OnlyIntervalsOfHeldOutRowsGrow) {
  Constants set = set_of("hopper", "titan-1", 0.02);
  set.rest_ratio = 3;
  const catalog::Chip& chip = shipped_catalog().chip("H100");
  EXPECT_EQ(constants_for({set}, chip, "titan-2").rest_ratio, 3);
  set.interval = 0;
  EXPECT_DOUBLE_EQ(constants_for({set}, chip, "titan-1").interval, 1.61 * 0.02);
  EXPECT_EQ(constants_for({set}, chip, "titan-1").rest_ratio, 0);
  MemoryFileSystem files;
  files.create_directories("c/constants");
  write_file_atomic(files, "c/constants/a.yaml", to_yaml(set, "test", "2026-11-24"));
  EXPECT_EQ(load_constants(files, {"c"})[0].rest_ratio, 3);
}

// Whatever was fitted or stated, products are little faster than the best measurement of the chip.
TEST(Constants, ProductsAreLimitedToTheBestMeasurement) {
  catalog::Chip chip = shipped_catalog().chip("H100");
  chip.best_product_ratio = 0.6;
  chip.best_fp8_product_ratio = 0.5;
  Constants constants = assumed_constants();
  constants[Constant::gemm_ratio] = 0.9;
  constants[Constant::gemm_fp8_ratio] = 0.4;
  cap_products(chip, constants);
  EXPECT_DOUBLE_EQ(constants[Constant::gemm_ratio], 0.63);
  EXPECT_DOUBLE_EQ(constants[Constant::gemm_fp8_ratio], 0.4);
  Constants exact = set_of(chip.generation, "bridge-25.11", 0.05);
  exact[Constant::gemm_ratio] = 0.9;
  EXPECT_DOUBLE_EQ(constants_for({exact}, chip, "bridge-25.11")[Constant::gemm_ratio], 0.63);
  chip.best_product_ratio = 0;  // not measured
  constants[Constant::gemm_ratio] = 0.9;
  cap_products(chip, constants);
  EXPECT_DOUBLE_EQ(constants[Constant::gemm_ratio], 0.9);
}

TEST(Constants, FilesKeepIntervalsAndSpread) {
  Constants set = set_of("any", "any", 0.07);
  set.anchored_interval = 0.08;
  set.spread = {0.11, 0.05, 0.06};
  set.origin[0] = Origin::fitted;
  MemoryFileSystem files;
  files.create_directories("c/constants");
  write_file_atomic(files, "c/constants/a.yaml", to_yaml(set, "test", "2026-11-23"));
  const std::vector<Constants> sets = load_constants(files, {"c"});
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_EQ(sets[0].interval, 0.1);
  EXPECT_EQ(sets[0].far_interval, 0.2);
  EXPECT_EQ(sets[0].anchored_interval, 0.08);
  EXPECT_EQ(sets[0].spread.alike, 0.05);
}

// The shipped sets: no chip falls back to the constants of a simulator's table, or to assumed ones.
TEST(Constants, ShippedDefaultsAreOfTheGenerationAndSimilar) {
  const std::vector<Constants> sets = load_constants(posix_file_system(), {catalog_folder()});
  for (const char* chip : {"A100-80", "H100", "B200", "GB200", "B300", "GB300"}) {
    const Constants constants = constants_for(sets, shipped_catalog().chip(chip), "");
    EXPECT_EQ(constants.nearness, Nearness::generation) << chip;
    EXPECT_EQ(constants.software, kAny) << chip;
    EXPECT_GT(constants.interval, 0) << chip;
  }
  const auto fp8 = [&](const char* chip) {
    return constants_for(sets, shipped_catalog().chip(chip), "")[Constant::gemm_fp8_ratio];
  };
  EXPECT_NEAR(fp8("B300") / fp8("B200"), 1, 0.25);  // equal peaks
}

}  // namespace
}  // namespace tutti::plan
