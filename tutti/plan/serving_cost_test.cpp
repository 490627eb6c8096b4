#include "tutti/plan/serving_cost.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::plan {
namespace {

spec::InferenceWork work_of(double bytes, double flops, int64_t rows) {
  spec::InferenceWork work;
  work.weight_bytes = bytes;
  work.product_flops = flops;
  work.rows = rows;
  return work;
}

TEST(ServingCost, RatesAreFoundAgain) {
  const ServingRates true_rates = {20e9, 50e9, 900e9, 0};
  const ServingCost cost(true_rates, {});
  std::vector<MeasuredPasses> few;
  for (const int64_t rows : {1, 8, 24}) {
    const spec::InferenceWork work = work_of(2e9, 2e9 * static_cast<double>(rows), rows);
    few.push_back({{work}, cost.pass_seconds(work)});
  }
  const spec::InferenceWork piece = work_of(2e9, 5e11, 256);
  const std::vector<MeasuredPasses> many = {{{piece, piece}, 2 * cost.pass_seconds(piece)}};
  const ServingRates rates = fitted_rates(few, many);
  EXPECT_NEAR(rates.bytes_per_second, 20e9, 1e3);
  EXPECT_NEAR(rates.few_row_flops, 50e9, 1e4);
  EXPECT_NEAR(rates.many_row_flops, 900e9, 1e6);
}

// Several streams that take no longer than one: nothing is known of the rate of products.
TEST(ServingCost, RatesAreNeverNegative) {
  const std::vector<MeasuredPasses> few = {{{work_of(1e9, 1e9, 1)}, 0.1},
                                           {{work_of(1e9, 16e9, 16)}, 0.09}};
  const std::vector<MeasuredPasses> many = {{{work_of(1e9, 1e12, 256)}, 0.05}};
  const ServingRates rates = fitted_rates(few, many);
  EXPECT_GT(rates.bytes_per_second, 1e10);
  EXPECT_EQ(rates.few_row_flops, 0);  // costs nothing
  EXPECT_GT(rates.many_row_flops, 0);
  EXPECT_THROW(fitted_rates(few, {}), Error);
}

TEST(ServingCost, ChipsShareAPassAndPayForSums) {
  catalog::System system;
  system.chips_per_node = 8;
  system.tiers = {{"link", 8, 400e9, 2e-6, 1, ""}};
  spec::ModelConfig model;
  model.hidden = 4096;
  model.layers = 32;
  const ServingRates rates = {2e12, 4e14, 4e14, 0};
  const spec::InferenceWork work = work_of(16e9, 16e9, 1);
  const double one = ServingCost(rates, model).pass_seconds(work);
  const double eight = ServingCost(rates, model, &system, 8).pass_seconds(work);
  EXPECT_NEAR(one, 16e9 / 2e12 + 16e9 / 4e14, 1e-9);
  EXPECT_GT(eight, one / 8 + 2 * 32 * 2e-6);  // at least a hop for each sum
  EXPECT_LT(eight, one / 2);
}

TEST(ServingCost, UnpublishedChipsAreRefused) {
  catalog::Chip chip;
  chip.name = "secret";
  EXPECT_THROW(assumed_rates(chip, {}), Error);
}

}  // namespace
}  // namespace tutti::plan
