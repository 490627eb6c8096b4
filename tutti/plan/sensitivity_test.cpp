#include "tutti/plan/sensitivity.h"

#include <gtest/gtest.h>

#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

struct Asked {
  StepPrediction step;
  std::vector<Saving> list;
};

Asked ask(const spec::Recipe& recipe, const catalog::System& system) {
  const spec::Profile& profile = spec::find_profile("megatron-te");
  const Constants constants = assumed_constants();
  PipelineSimulator simulator;
  Predictor predictor(system, constants, simulator);
  Asked out;
  out.step = predictor.step(recipe, profile);
  out.list = savings(recipe, profile, system, constants, out.step, simulator);
  return out;
}

double share(const Asked& asked, std::string_view resource) {
  for (const Saving& each : asked.list) {
    if (each.resource == resource) return each.share;
  }
  return -1;
}

// Tensor parallelism over two nodes: products are the largest part of the step, and twice the
// network saves more than twice the products.
TEST(Sensitivity, ReportsTheNetworkIfItSavesMost) {
  catalog::System slow = shipped().system("dgx-h100");
  for (size_t i = 1; i < slow.tiers.size(); ++i) slow.tiers[i].bytes_per_second = 3e9;
  const Asked asked = ask(recipe_of("llama3.1-70b", {"batch={global: 64, micro: 1, sequence: 8192}",
                                                     "parallel={tp: 8, dp: 8, zero: 1}"}),
                          slow);
  EXPECT_STREQ(asked.list.front().resource, "network");
  EXPECT_GT(asked.list.front().share, share(asked, "matrix products"));
  // The prediction with the network doubled confirms it.
  catalog::System faster = slow;
  for (size_t i = 1; i < faster.tiers.size(); ++i) {
    faster.tiers[i].bytes_per_second *= 2;
    faster.tiers[i].latency_seconds /= 2;
  }
  const Asked after = ask(recipe_of("llama3.1-70b", {"batch={global: 64, micro: 1, sequence: 8192}",
                                                     "parallel={tp: 8, dp: 8, zero: 1}"}),
                          faster);
  EXPECT_NEAR(1 - after.step.step_seconds / asked.step.step_seconds, asked.list.front().share,
              1e-12);
  EXPECT_NE(limit_text(asked.list).find("network: twice as fast, "), std::string::npos);
}

TEST(Sensitivity, OneChipHasNoLink) {
  const Asked asked = ask(recipe_of("gpt2-124m", {"batch={global: 8, micro: 8, sequence: 1024}"}),
                          shipped().system("dgx-h100"));
  EXPECT_EQ(share(asked, "link"), -1);
  EXPECT_EQ(share(asked, "network"), -1);
  EXPECT_GT(asked.list.front().share, 0);
  for (const Saving& each : asked.list) {
    EXPECT_GE(each.share, 0) << each.resource;
    EXPECT_LE(each.share, 0.5) << each.resource;
  }
}

}  // namespace
}  // namespace tutti::plan
