#include "tutti/telemetry/sink.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/memory_file.h"
#include "tutti/base/text.h"
#include "tutti/telemetry/jsonl.h"
#include "tutti/telemetry/terminal.h"
#include "tutti/telemetry/test_support.h"

namespace tutti::telemetry {
namespace {

using testing::KeepingSink;
using testing::Screen;

std::shared_ptr<std::vector<Event>> keep_events(Telemetry& telemetry) {
  auto events = std::make_shared<std::vector<Event>>();
  telemetry.add(std::make_unique<KeepingSink>(events));
  return events;
}

int64_t lines(FileSystem& files, const std::string& path) {
  return static_cast<int64_t>(split(read_file(files, path), '\n').size()) - 1;
}

StepDone step(int64_t number) {
  StepDone out;
  out.step = number;
  return out;
}

TEST(Telemetry, FansOutInOrderWithTheTimeOfEmission) {
  Telemetry telemetry;
  const auto first = keep_events(telemetry);
  const auto second = keep_events(telemetry);
  for (int64_t i = 0; i < 1000; ++i) telemetry.emit(step(i));
  telemetry.flush();
  ASSERT_EQ(first->size(), 1000U);
  ASSERT_EQ(second->size(), 1000U);
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(std::get<StepDone>((*first)[i].body).step, static_cast<int64_t>(i));
    EXPECT_GT((*first)[i].wall_seconds, 1.7e9);
  }
}

TEST(Telemetry, DestructionWritesWhatIsQueued) {
  auto events = std::make_shared<std::vector<Event>>();
  {
    Telemetry telemetry;
    telemetry.add(std::make_unique<KeepingSink>(events));
    telemetry.info("last words");
  }
  ASSERT_EQ(events->size(), 1U);
  EXPECT_EQ(std::get<Message>(events->front().body).text, "last words");
}

TEST(Telemetry, WithoutSinksOrEventsFlushReturns) {
  Telemetry telemetry;
  telemetry.flush();
  telemetry.info("to nobody");
  telemetry.flush();
}

// A disk that fills up under the log: told once on standard error, then the run goes on.
TEST(Telemetry, AFullDiskDropsTheLogAndNothingElse) {
  MemoryFileSystem files;
  Telemetry telemetry;
  telemetry.add(std::make_unique<JsonLinesSink>(files, "events.jsonl"));
  const auto events = keep_events(telemetry);
  telemetry.emit(step(1));
  telemetry.flush();
  const int64_t before = lines(files, "events.jsonl");

  files.fail_operation(files.operation_count(), ErrorKind::no_space, true);
  ::testing::internal::CaptureStderr();
  for (int64_t i = 2; i <= 10; ++i) telemetry.emit(step(i));
  telemetry.flush();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(split(told, '\n').size(), 2U) << told;  // one line
  EXPECT_NE(told.find("events.jsonl"), std::string::npos) << told;
  EXPECT_EQ(lines(files, "events.jsonl"), before);

  files.clear_faults();
  telemetry.emit(step(11));
  telemetry.flush();
  EXPECT_EQ(lines(files, "events.jsonl"), before);  // dropped for good
  int64_t steps = 0;
  int64_t warnings = 0;
  for (const Event& event : *events) {
    steps += std::holds_alternative<StepDone>(event.body) ? 1 : 0;
    warnings += std::holds_alternative<Message>(event.body) ? 1 : 0;
  }
  EXPECT_EQ(steps, 11);
  EXPECT_EQ(warnings, 1);
}

TEST(Telemetry, AFailingLogIsToldThroughTheTerminalWhereThereIsOne) {
  MemoryFileSystem files;
  Telemetry telemetry;
  const Screen screen;
  telemetry.add(std::make_unique<JsonLinesSink>(files, "events.jsonl"));
  telemetry.add(std::make_unique<TerminalSink>(TerminalOptions{screen.console(false)}));
  files.fail_operation(files.operation_count(), ErrorKind::io, true);
  ::testing::internal::CaptureStderr();
  telemetry.info("hello");
  telemetry.flush();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(screen.text->find("warning: a log is no longer written: "), std::string::npos)
      << *screen.text;
}

TEST(Telemetry, AFailingFlushDropsTheSink) {
  class Failing final : public Sink {
    void write(const Event& /*event*/) override {}
    void flush() override { fail(ErrorKind::io, "device gone"); }
  };
  Telemetry telemetry;
  telemetry.add(std::make_unique<Failing>());
  ::testing::internal::CaptureStderr();
  telemetry.flush();
  telemetry.flush();
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told, "warning: a log is no longer written: device gone; the run goes on\n");
}

// Blocks in write() until released, as a stuck disk does.
class StuckSink final : public Sink {
 public:
  explicit StuckSink(std::shared_ptr<std::atomic<bool>> released)
      : released_(std::move(released)) {}
  void write(const Event& /*event*/) override { released_->wait(false); }

 private:
  std::shared_ptr<std::atomic<bool>> released_;
};

TEST(Telemetry, AStuckSinkDoesNotBlockEmit) {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  Telemetry telemetry;
  telemetry.add(std::make_unique<StuckSink>(released));
  const auto events = keep_events(telemetry);
  constexpr auto kSteps = static_cast<int64_t>(3 * Telemetry::kQueueLimit);
  for (int64_t i = 1; i <= kSteps; ++i) telemetry.emit(step(i));  // returns although nothing moves
  telemetry.warn("kept although the queue is full");
  released->store(true);
  released->notify_all();
  telemetry.flush();
  telemetry.info("later");  // brings the note about what is missing, if it was not written yet
  telemetry.flush();

  int64_t steps = 0;
  bool warned = false;
  std::string note;
  for (const Event& event : *events) {
    if (std::holds_alternative<StepDone>(event.body)) ++steps;
    if (const auto* message = std::get_if<Message>(&event.body)) {
      warned = warned || message->text == "kept although the queue is full";
      if (message->text.find("missing from the logs") != std::string::npos) note = message->text;
    }
  }
  EXPECT_LT(steps, kSteps);
  EXPECT_TRUE(warned);
  EXPECT_NE(note.find(std::to_string(kSteps - steps)), std::string::npos) << note;
}

TEST(Telemetry, ThreadsEmitTogether) {
  MemoryFileSystem files;
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  {
    Telemetry telemetry;
    telemetry.add(std::make_unique<JsonLinesSink>(files, "events.jsonl"));
    const auto events = keep_events(telemetry);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&telemetry, t] {
        for (int i = 0; i < kEach; ++i) {
          telemetry.emit(step(t * kEach + i));
          if (i % 100 == 0) telemetry.flush();
        }
      });
    }
    telemetry.add(std::make_unique<KeepingSink>(std::make_shared<std::vector<Event>>()));
    for (std::thread& thread : threads) thread.join();
    telemetry.flush();

    // Every event once, and those of one thread in its order.
    std::vector<int64_t> last(kThreads, -1);
    ASSERT_EQ(events->size(), static_cast<size_t>(kThreads * kEach));
    for (const Event& event : *events) {
      const int64_t number = std::get<StepDone>(event.body).step;
      int64_t& before = last[static_cast<size_t>(number / kEach)];
      EXPECT_EQ(number % kEach, before + 1);
      before = number % kEach;
    }
  }
  EXPECT_EQ(lines(files, "events.jsonl"), kThreads * kEach);
}

}  // namespace
}  // namespace tutti::telemetry
