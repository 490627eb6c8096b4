#include "tutti/telemetry/events.h"

#include <gtest/gtest.h>

#include <limits>

namespace tutti::telemetry {
namespace {

constexpr double kWall = 1769860800.12345;  // 2026-01-31T12:00:00Z and a bit

Json parsed(decltype(Event::body) body) {
  return parse_json(dump_json(to_json({kWall, std::move(body)})), "event");
}

TEST(Events, EveryLineHasNameAndTime) {
  const Json line = parsed(Message{Level::warning, "disk \"full\"\n"});
  EXPECT_EQ(line["event"], "message");
  EXPECT_EQ(line["time"], "2026-01-31T12:00:00Z");
  EXPECT_EQ(line["wall_seconds"], 1769860800.123);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["text"], "disk \"full\"\n");
}

TEST(Events, StepDoneKeepsItsValues) {
  StepDone step;
  step.step = 7;
  step.micro_batches = 3;
  step.tokens = int64_t{1} << 53;
  step.loss = 1.8834217;
  step.gradient_norm = 0.31;
  step.learning_rate = 6e-4;
  step.step_seconds = 0.25;
  step.tokens_per_second = 12345.5;
  step.mfu = 0.61;
  step.data_wait_seconds = 1e-5;
  step.skipped = true;
  EXPECT_FALSE(parsed(step).contains("routing"));  // of models with experts only
  EXPECT_FALSE(parsed(step).contains("ce_loss"));  // of runs with a teacher only
  step.parts = LossParts{2.5, 0.75};
  EXPECT_EQ(parsed(step)["ce_loss"], 2.5);
  EXPECT_EQ(parsed(step)["kl_loss"], 0.75);
  step.routing = Routing{2.125, 4.5, 1.25, 0.0625};
  const Json line = parsed(step);
  EXPECT_EQ(line["event"], "step_done");
  EXPECT_EQ(line["step"], 7);
  EXPECT_EQ(line["micro_batches"], 3);
  EXPECT_EQ(line["tokens"], int64_t{1} << 53);
  EXPECT_EQ(line["loss"], 1.8834217);
  EXPECT_EQ(line["gradient_norm"], 0.31);
  EXPECT_EQ(line["learning_rate"], 6e-4);
  EXPECT_EQ(line["step_seconds"], 0.25);
  EXPECT_EQ(line["tokens_per_second"], 12345.5);
  EXPECT_EQ(line["mfu"], 0.61);
  EXPECT_EQ(line["data_wait_seconds"], 1e-5);
  EXPECT_EQ(line["skipped"], true);
  EXPECT_EQ(line["targets"], 0);
  EXPECT_EQ(line["useful_share"], 1);
  EXPECT_EQ(line["routing"]["balance_loss"], 2.125);
  EXPECT_EQ(line["routing"]["z_loss"], 4.5);
  EXPECT_EQ(line["routing"]["load_max_over_mean"], 1.25);
  EXPECT_EQ(line["routing"]["dropped_share"], 0.0625);
}

TEST(Events, NonFiniteNumbersBecomeNull) {
  StepDone step;
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  step.mfu = -std::numeric_limits<double>::infinity();
  const Json line = parsed(step);
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["gradient_norm"].is_null());
  EXPECT_TRUE(line["mfu"].is_null());

  RunFinished finished;
  finished.summary["loss"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(parsed(finished)["summary"]["loss"].is_null());

  EXPECT_EQ(parsed(Message{Level::info, "not UTF-8: \xff"})["event"], "message");
}

TEST(Events, OtherEventsKeepTheirValues) {
  RunStarted started;
  started.run = "runs/a";
  started.parameters = 124439808;
  started.first_step = 10;
  started.details["threads"] = 2;
  Json line = parsed(started);
  EXPECT_EQ(line["event"], "run_started");
  EXPECT_EQ(line["run"], "runs/a");
  EXPECT_EQ(line["parameters"], 124439808);
  EXPECT_EQ(line["first_step"], 10);
  EXPECT_TRUE(line["target_loss"].is_null());
  EXPECT_EQ(line["details"]["threads"], 2);
  started.target_loss = 1.9;
  EXPECT_EQ(parsed(started)["target_loss"], 1.9);

  line = parsed(EvaluationDone{5, 1.5, 4096, 0.25});
  EXPECT_EQ(line["event"], "evaluation_done");
  EXPECT_EQ(line["step"], 5);
  EXPECT_EQ(line["loss"], 1.5);
  EXPECT_EQ(line["tokens"], 4096);
  EXPECT_EQ(line["seconds"], 0.25);

  line = parsed(CheckpointSaved{5, "checkpoints/step-00000005", 1000, 0.125, 2.5});
  EXPECT_EQ(line["event"], "checkpoint_saved");
  EXPECT_EQ(line["path"], "checkpoints/step-00000005");
  EXPECT_EQ(line["bytes"], 1000);
  EXPECT_EQ(line["stall_seconds"], 0.125);
  EXPECT_EQ(line["write_seconds"], 2.5);

  line = parsed(CheckpointFailed{6, "no space"});
  EXPECT_EQ(line["event"], "checkpoint_failed");
  EXPECT_EQ(line["message"], "no space");

  line = parsed(TextGenerated{6, "int ", "x;", 2, 0.5});
  EXPECT_EQ(line["event"], "text_generated");
  EXPECT_EQ(line["prompt"], "int ");
  EXPECT_EQ(line["text"], "x;");
  EXPECT_EQ(line["tokens"], 2);

  line = parsed(NonFinite{6, "blocks.0.attention.qkv.weight", 2});
  EXPECT_EQ(line["event"], "non_finite");
  EXPECT_EQ(line["tensor"], "blocks.0.attention.qkv.weight");
  EXPECT_EQ(line["in_a_row"], 2);

  line = parsed(BudgetExceeded{"hours", 1.0, 1.01});
  EXPECT_EQ(line["event"], "budget_exceeded");
  EXPECT_EQ(line["what"], "hours");
  EXPECT_EQ(line["limit"], 1.0);
  EXPECT_EQ(line["used"], 1.01);

  GpuMeasured gpu;
  gpu.gpu = "0000:1a:00.0";
  gpu.power_watts = 650.5;
  gpu.throttled = {"power cap"};
  line = parsed(gpu);
  EXPECT_EQ(line["event"], "gpu_measured");
  EXPECT_EQ(line["gpu"], "0000:1a:00.0");
  EXPECT_EQ(line["power_watts"], 650.5);
  EXPECT_EQ(line["throttled"][0], "power cap");
  EXPECT_FALSE(line.contains("energy_joules"));

  line = parsed(RunFinished{"target_reached", {{"steps", 10}}});
  EXPECT_EQ(line["event"], "run_finished");
  EXPECT_EQ(line["outcome"], "target_reached");
  EXPECT_EQ(line["summary"]["steps"], 10);
}

}  // namespace
}  // namespace tutti::telemetry
