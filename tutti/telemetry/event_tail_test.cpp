#include "tutti/telemetry/event_tail.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/telemetry/sinks/jsonl.h"

namespace tutti::telemetry {
namespace {

TEST(EventTail, FindsTheLastWholeStep) {
  MemoryFileSystem files;
  EXPECT_FALSE(last_step(files, "events.jsonl").has_value());
  JsonLinesSink sink(files, "events.jsonl");
  sink.write({1, RunStarted{}});
  EXPECT_FALSE(last_step(files, "events.jsonl").has_value());
  for (int64_t i = 1; i <= 1000; ++i) {
    StepDone step;
    step.step = i;
    step.loss = 2.5;
    sink.write({1, step});
  }
  sink.write({1, EvaluationDone{1000, 2, 3, 4}});
  ASSERT_TRUE(last_step(files, "events.jsonl").has_value());
  EXPECT_EQ(last_step(files, "events.jsonl")->step, 1000);
  EXPECT_EQ(last_step(files, "events.jsonl")->loss, 2.5);
  const auto file = files.open_append("events.jsonl");
  const std::string cut = R"({"event":"step_done","step":1001)";
  file->append(cut.data(), cut.size());
  EXPECT_EQ(last_step(files, "events.jsonl")->step, 1000);
}

}  // namespace
}  // namespace tutti::telemetry
