#include "tutti/telemetry/sink.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/base/text.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/telemetry/sinks/terminal.h"
#include "tutti/telemetry/testing/test_support.h"

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

TEST(Telemetry, FansOutInOrderWithEmissionTime) {
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

TEST(Telemetry, FlushReturnsWithoutSinksOrEvents) {
  Telemetry telemetry;
  telemetry.flush();
  telemetry.info("without sinks");
  telemetry.flush();
}

std::vector<int64_t> steps_in(FileSystem& files, const std::string& path) {
  std::vector<int64_t> steps;
  read_events(files, path, [&](const Event& event) {
    if (const auto* done = std::get_if<StepDone>(&event.body)) steps.push_back(done->step);
  });
  return steps;
}

std::vector<int64_t> numbers(int64_t first, int64_t last) {
  std::vector<int64_t> out(static_cast<size_t>(last - first + 1));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// Whichever operation of the disk fails once: nothing is missing and nothing is logged.
TEST(Telemetry, OneFailedWriteLosesNothing) {
  for (int64_t operation = 0; operation < 12; ++operation) {
    MemoryFileSystem files;
    Telemetry telemetry;
    telemetry.add(std::make_unique<JsonLinesSink>(files, "events.jsonl"));
    files.start_record();
    files.fail_operation(operation, ErrorKind::io, false);
    ::testing::internal::CaptureStderr();
    for (int64_t i = 1; i <= 10; ++i) telemetry.emit(step(i));
    telemetry.flush();
    EXPECT_EQ(steps_in(files, "events.jsonl"), numbers(1, 10)) << operation;
    EXPECT_EQ(telemetry.missing_events(), 0);
    const std::string logged = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(logged.empty(), operation != 10) << logged;  // that one is the sync
  }
}

// A disk that is full for a while under the log: reported once on standard error, and when it is
// over; the run continues, and what could not be written follows.
TEST(Telemetry, FullDisksDelayOnlyTheLog) {
  MemoryFileSystem files;
  Telemetry telemetry;
  telemetry.add(std::make_unique<JsonLinesSink>(files, "events.jsonl"));
  const auto events = keep_events(telemetry);
  telemetry.emit(step(1));
  telemetry.flush();

  files.fail_operation(files.operation_count(), ErrorKind::no_space, true);
  ::testing::internal::CaptureStderr();
  for (int64_t i = 2; i <= 10; ++i) telemetry.emit(step(i));
  telemetry.flush();
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(split(logged, '\n').size(), 2U) << logged;  // one line
  EXPECT_NE(logged.find("events.jsonl"), std::string::npos) << logged;
  EXPECT_EQ(steps_in(files, "events.jsonl"), numbers(1, 1));
  EXPECT_EQ(telemetry.missing_events(), 10);  // with the warning

  files.clear_faults();
  ::testing::internal::CaptureStderr();
  telemetry.emit(step(11));
  telemetry.flush();
  const std::string over = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(over.find("written again"), std::string::npos) << over;
  EXPECT_NE(over.find("nothing is missing"), std::string::npos) << over;
  EXPECT_EQ(steps_in(files, "events.jsonl"), numbers(1, 11));
  EXPECT_EQ(telemetry.missing_events(), 0);
  int64_t steps = 0;
  int64_t warnings = 0;
  for (const Event& event : *events) {
    steps += std::holds_alternative<StepDone>(event.body) ? 1 : 0;
    warnings += std::holds_alternative<Message>(event.body) ? 1 : 0;
  }
  EXPECT_EQ(steps, 11);
  EXPECT_EQ(warnings, 2);
}

// Longer than what can wait: the log says where it has a gap, and of which steps.
TEST(Telemetry, AGapIsRecordedWhereItIs) {
  MemoryFileSystem files;
  constexpr auto kLimit = static_cast<int64_t>(Telemetry::kWaitingLimit);
  Telemetry telemetry;
  telemetry.add(std::make_unique<JsonLinesSink>(files, "events.jsonl"));
  files.fail_operation(files.operation_count(), ErrorKind::io, true);
  ::testing::internal::CaptureStderr();
  for (int64_t i = 1; i <= kLimit + 50; ++i) telemetry.emit(step(i));
  telemetry.flush();
  files.clear_faults();
  telemetry.flush();
  telemetry.emit(step(kLimit + 51));
  telemetry.flush();
  ::testing::internal::GetCapturedStderr();
  std::vector<int64_t> seen;
  std::vector<EventsLost> gaps;
  read_events(files, "events.jsonl", [&](const Event& event) {
    if (const auto* done = std::get_if<StepDone>(&event.body)) seen.push_back(done->step);
    if (const auto* gap = std::get_if<EventsLost>(&event.body)) {
      gaps.push_back(*gap);
      EXPECT_EQ(gap->first_step, seen.back() + 1);
    }
  });
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].events, gaps[0].last_step - gaps[0].first_step + 1);
  EXPECT_EQ(gaps[0].last_step, kLimit + 50);
  EXPECT_NE(gaps[0].cause.find("events.jsonl"), std::string::npos) << gaps[0].cause;
  EXPECT_EQ(static_cast<int64_t>(seen.size()) + gaps[0].events, kLimit + 51);
  EXPECT_EQ(seen.back(), kLimit + 51);
  EXPECT_EQ(telemetry.missing_events(), gaps[0].events);
}

TEST(Telemetry, FailingLogsAreReportedOnTheTerminal) {
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
  EXPECT_NE(screen.text->find("warning: a log cannot be written: "), std::string::npos)
      << *screen.text;
}

TEST(Telemetry, FailingFlushesAreReportedOnce) {
  class Failing final : public Sink {
    void write(const Event& /*event*/) override {}
    void flush() override { fail(ErrorKind::io, "device gone"); }
  };
  Telemetry telemetry;
  telemetry.add(std::make_unique<Failing>());
  ::testing::internal::CaptureStderr();
  telemetry.flush();
  telemetry.flush();
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(logged, "warning: a log may not survive a power cut: device gone; the run continues\n");
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

TEST(Telemetry, ThreadsEmitConcurrently) {
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
