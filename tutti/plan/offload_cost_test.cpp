#include "tutti/plan/offload_cost.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/plan/predict.h"
#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

const std::vector<std::string> kOffloadLayout = {"batch.global=8", "batch.micro=1",
                                                 "batch.sequence=4096", "recompute=full"};

spec::Recipe with(const std::string& offload) {
  std::vector<std::string> overrides = kOffloadLayout;
  overrides.push_back("offload=" + offload);
  return recipe_of("llama3.1-8b", overrides);
}

// Bytes over the link, the share of its 64 GB/s that copies reach, and the work that hides them.
TEST(OffloadCost, CountsExposedCopiesOnly) {
  const catalog::Chip& chip = shipped().system("dgx-h100").chip;
  const spec::Recipe recipe = with("{optimizer: true, activations: all}");
  const spec::MemoryMap map = spec::memory_map(recipe);
  const spec::OffloadTraffic traffic = spec::offload_traffic(recipe, map);
  const double rate = 64e9 * 0.85;
  const double state = static_cast<double>(traffic.state_in) / rate;
  const double activations = static_cast<double>(traffic.activations_out) / 8 / rate;
  EXPECT_GT(state, 1);  // 12 bytes for each of 8 billion parameters
  const OffloadSeconds alone = price_offload(recipe, 0, map, chip, {});
  EXPECT_DOUBLE_EQ(alone.state, state);
  EXPECT_DOUBLE_EQ(alone.activations, 2 * activations);
  // 30 of 32 layers are offloaded.
  const OffloadSeconds partly =
      price_offload(recipe, 0, map, chip,
                    {.forward = 0.5 * activations, .backward = 9 * activations, .update = 1});
  EXPECT_NEAR(partly.activations, activations * (1 - 0.5 * 30 / 32), 1e-12);
  EXPECT_DOUBLE_EQ(partly.state, state - 0.5);
  EXPECT_EQ(price_offload(recipe, 0, map, chip, {.update = 3 * state}).state, 0);
  const OffloadSeconds none = price_offload(with("{}"), 0, spec::memory_map(with("{}")), chip, {});
  EXPECT_EQ(none.state + none.activations, 0);
}

TEST(OffloadCost, IsPartOfAStepWhoseMemoryItFrees) {
  const catalog::System& system = shipped().system("dgx-h100");
  PipelineSimulator simulator;
  const Constants constants = assumed_constants();
  Predictor predictor(system, constants, simulator);
  const spec::Profile& profile = spec::tutti_profile();
  const StepPrediction plain = predictor.step(with("{}"), profile);
  EXPECT_EQ(plain.split.offload, 0);
  EXPECT_FALSE(predict_memory(with("{}"), profile, system, constants).fits);  // 8 billion on one
  const spec::Recipe recipe = with("{optimizer: true, activations: all}");
  const StepPrediction step = predictor.step(recipe, profile);
  EXPECT_GT(step.split.offload, 1);
  EXPECT_NEAR(step.step_seconds, plain.step_seconds + step.split.offload, 0.02 * step.step_seconds);
  EXPECT_TRUE(predict_memory(recipe, profile, system, constants).fits);
}

TEST(OffloadCost, NeedsToKnowTheLink) {
  catalog::Chip chip = shipped().system("dgx-h100").chip;
  chip.entry.quantities.erase("host_link_gigabytes_per_second");
  const spec::Recipe recipe = with("{optimizer: true}");
  try {
    price_offload(recipe, 0, spec::memory_map(recipe), chip, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("host_link_gigabytes_per_second"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::plan
