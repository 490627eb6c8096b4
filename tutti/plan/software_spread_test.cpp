#include "tutti/plan/software_spread.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/real.h"
#include "tutti/plan/run_forecast.h"
#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

const std::vector<Constants>& shipped_sets() {
  static const std::vector<Constants> sets =
      load_constants(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  return sets;
}

// Narayanan et al. 2021, table 2: GPT-3 175B by ZeRO-3 alone, TFLOP/s per A100 as they count them,
// recomputation included: 144, 88 and 44. Without the software the interval has them.
TEST(SoftwareSpread, PublishedZero3IsWithinTheInterval) {
  const catalog::System& system = shipped().system("dgx-a100");
  const Constants constants = constants_for(shipped_sets(), system.chip, "");
  struct Row {
    int64_t gpus, micro;
    double tflops;
  };
  for (const Row& row : {Row{384, 4, 144}, Row{768, 2, 88}, Row{1536, 1, 44}}) {
    SCOPED_TRACE(row.gpus);
    const spec::Recipe recipe =
        recipe_of("gpt3-175b", {"batch.global=1536", "batch.micro=" + std::to_string(row.micro),
                                "batch.sequence=2048", "recompute=full", "parallel.zero=3",
                                "parallel.dp=" + std::to_string(row.gpus)});
    RunQuestion question;
    question.recipe = &recipe;
    question.profile = &spec::find_profile("megatron-te");
    question.system = &system;
    question.site = &shipped().site("us-average");
    question.constants = &constants;
    question.exits = open_exits(shipped_sets(), constants);
    PipelineSimulator simulator;
    const RunForecast forecast = forecast_run(question, simulator);
    const double flops = spec::flops_per_token(recipe.model, 2048, spec::FlopConvention::hardware);
    const double measured = 1536.0 * 2048 * flops / (row.tflops * 1e12 * real(row.gpus));
    const double apart = std::log(measured / forecast.step.step_seconds);
    EXPECT_LT(apart, forecast.interval_above) << forecast.step.step_seconds << " " << measured;
    EXPECT_GT(apart, -forecast.interval_below);
    EXPECT_NE(forecast.interval_from.find("deepspeed-2021"), std::string::npos)
        << forecast.interval_from;
  }
}

TEST(SoftwareSpread, StatedSoftwareLeavesNothingOpen) {
  const catalog::Chip& chip = shipped().system("dgx-a100").chip;
  EXPECT_TRUE(
      open_exits(shipped_sets(), constants_for(shipped_sets(), chip, "megatron-2021")).empty());
  const std::vector<NodeExit> open =
      open_exits(shipped_sets(), constants_for(shipped_sets(), chip, ""));
  EXPECT_GE(open.size(), 2U);
  // A step within a node takes the same time whatever leaves it.
  const spec::Recipe recipe = recipe_of("llama3.1-8b", {"batch.global=64", "parallel.tp=8"});
  PipelineSimulator simulator;
  const SoftwareSpread spread =
      software_spread(recipe, spec::find_profile("megatron-te"), shipped().system("dgx-a100"),
                      constants_for(shipped_sets(), chip, ""), open, simulator);
  EXPECT_EQ(spread.longer, 0);
  EXPECT_EQ(spread.shorter, 0);
}

}  // namespace
}  // namespace tutti::plan
