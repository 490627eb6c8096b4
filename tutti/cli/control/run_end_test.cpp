#include "tutti/cli/control/run_end.h"

#include <gtest/gtest.h>

#include "tutti/base/json.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/telemetry/events.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

class RunEnd : public ::testing::Test {
 protected:
  void start(double at_seconds, int64_t steps, int64_t first_step = 0) {
    telemetry::RunStarted started;
    started.steps = steps;
    started.first_step = first_step;
    add({at_seconds, started});
  }
  void step(double at_seconds, int64_t number, double seconds = 1) {
    telemetry::StepDone done;
    done.step = number;
    done.step_seconds = seconds;
    add({at_seconds, done});
  }
  void add(const telemetry::Event& event) { text_ += dump_json(telemetry::to_json(event)) + "\n"; }
  std::optional<double> end(double now = 0) {
    files_.create_directories("run");
    write_file_atomic(files_, train::events_path("run"), text_);
    return run_end_seconds(files_, "run", now);
  }

  MemoryFileSystem files_;
  std::string text_;
};

TEST_F(RunEnd, FollowsThePaceOfTheSession) {
  EXPECT_FALSE(run_end_seconds(files_, "run", 0));
  EXPECT_FALSE(end());
  start(1000, 100);
  EXPECT_FALSE(end());
  step(1060, 1, 3);  // the first is preceded by what happens once
  EXPECT_EQ(end(), 1060 + 99 * 3);
  step(1062, 2);
  step(1080, 11);
  EXPECT_EQ(end(), 1080 + 89 * 2);
  // What passed between two sessions is no pace.
  start(5000, 50, 10);
  step(5010, 11);
  step(5014, 12);
  EXPECT_EQ(end(), 5014 + 38 * 4);
  EXPECT_EQ(end(9000), 9000);  // late
  text_ += R"({"event":"step_done","step":4)";
  EXPECT_EQ(end(), 5014 + 38 * 4);
}

TEST_F(RunEnd, ReadsTheEndOfLongRecords) {
  start(0, 30'000);
  for (int64_t i = 1; i <= 8'000; ++i) step(static_cast<double>(i < 1'000 ? i : 3 * i), i);
  ASSERT_GT(text_.size(), size_t{3} << 19);
  EXPECT_FALSE(end());
  write_file_atomic(files_, train::recipe_path("run"), "train:\n  steps: 40000\n");
  EXPECT_EQ(end(), 24'000 + 32'000 * 3);
}

}  // namespace
}  // namespace tutti::cli
