#include "tutti/plan/predict.h"

#include <gtest/gtest.h>

#include "tutti/plan/plan_test_support.h"

namespace tutti::plan {
namespace {

StepPrediction predict(const spec::Recipe& recipe, const Constants& constants,
                       const std::string& system = "dgx-h100") {
  PipelineSimulator simulator;
  Predictor predictor(shipped().system(system), constants, simulator);
  return predictor.step(recipe, spec::find_profile("megatron-te"));
}

const std::vector<std::string> kLayout = {"batch.global=64", "batch.micro=1", "parallel.tp=4",
                                          "parallel.pp=4",   "parallel.dp=2", "parallel.zero=1"};

TEST(Predict, PartsAddUpToTheStepAndToThePipeline) {
  const StepPrediction step = predict(recipe_of("llama2-70b", kLayout), assumed_constants());
  EXPECT_NEAR(step.split.total(), step.step_seconds, 1e-9);
  EXPECT_GT(step.split.bubble, 0);
  EXPECT_GT(step.split.tp, 0);
  EXPECT_GT(step.mfu_causal, 0.1);
  EXPECT_LT(step.mfu_causal, 0.7);
  EXPECT_LT(step.mfu_causal, step.mfu_square);
  EXPECT_STREQ(step.bottleneck, "matrix products");
}

// With everything else free, a step takes its FLOPs over the peak.
TEST(Predict, IdealMachineRunsAtThePeak) {
  Constants ideal = assumed_constants();
  ideal[Constant::gemm_ratio] = ideal[Constant::attention_ratio] =
      ideal[Constant::attention_backward_ratio] = 1;
  ideal[Constant::gemm_side_count] = ideal[Constant::gemm_depth_count] = 0;
  ideal[Constant::launch_microseconds] = ideal[Constant::step_overhead_seconds] = 0;
  catalog::System system = shipped().system("dgx-h100");
  system.chip.memory_bytes_per_second *= 1e9;
  PipelineSimulator simulator;
  Predictor predictor(system, ideal, simulator);
  const spec::Recipe recipe =
      recipe_of("llama3.1-8b", {"batch.global=1", "batch.micro=1", "batch.sequence=8192"});
  const StepPrediction step = predictor.step(recipe, spec::find_profile("megatron-te"));
  // Fused attention computes its scores again on the way back: 7 halves instead of 6.
  EXPECT_GT(step.mfu_causal, 0.93);
  EXPECT_LE(step.mfu_causal, 1.0);
}

TEST(Predict, MoreBandwidthOrFewerFlopsNeverSlowAStep) {
  const spec::Recipe recipe = recipe_of("llama2-70b", kLayout);
  const double base = predict(recipe, assumed_constants()).step_seconds;
  EXPECT_LT(predict(recipe, assumed_constants(), "dgx-b200").step_seconds, base);
  EXPECT_LE(predict(recipe, assumed_constants(), "dgx-h200").step_seconds, base);
  std::vector<std::string> full = kLayout;
  full.emplace_back("recompute=full");
  const StepPrediction recomputed = predict(recipe_of("llama2-70b", full), assumed_constants());
  EXPECT_GT(recomputed.step_seconds, 1.15 * base);
  EXPECT_GT(recomputed.split.recompute, 0);
}

TEST(Predict, MemoryIsTheMapsUnderTheReserve) {
  const spec::Recipe recipe = recipe_of("llama2-70b", kLayout);
  const spec::Profile& profile = spec::find_profile("megatron-te");
  const MemoryPrediction memory =
      predict_memory(recipe, profile, shipped().system("dgx-h100"), assumed_constants());
  EXPECT_EQ(memory.allocated_bytes,
            static_cast<double>(spec::memory_map(recipe, profile, memory.stage).total_bytes()));
  EXPECT_NEAR(memory.bytes / memory.allocated_bytes, 1.04, 1e-9);
  EXPECT_TRUE(memory.fits);
  // 175 billion parameters with their optimizer do not fit 32 chips of 80 GB, but of 288.
  EXPECT_TRUE(
      predict_memory(recipe, profile, shipped().system("azure-nd-gb300-v6"), assumed_constants())
          .fits);
}

}  // namespace
}  // namespace tutti::plan
