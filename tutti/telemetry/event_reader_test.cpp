#include "tutti/telemetry/event_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/telemetry/sinks/jsonl.h"

namespace tutti::telemetry {
namespace {

// One event of each kind, no member at its default.
std::vector<Event> one_of_each() {
  RunStarted run{"runs/a",
                 "a",
                 7,
                 100,
                 20,
                 64,
                 6e6,
                 1e12,
                 1.5,
                 "6 N",
                 Json{{"owner", "me"}},
                 TeacherDescribed{"t/step-00000003", 3, "abc", "large", 99, 2, 0.5}};
  MachineDescribed machine{"host",
                           "cpu",
                           4,
                           3,
                           2e9,
                           1 << 30,
                           "avx2",
                           "bf16",
                           1e12,
                           2e12,
                           "0.1.0",
                           "0123",
                           "libc.so.6 1a2b3c4d"};
  CorpusDescribed corpus{"training",
                         "p",
                         1000,
                         10,
                         2000,
                         "abc",
                         "byte",
                         "def",
                         257,
                         "2026",
                         "CC0-1",
                         "public",
                         {{"s", 1, 2, 3, "h", "CC-BY", "internal"}},
                         "456",
                         "789"};
  MemoryMeasured memory{1, 100, 200, {{"weights", 64}, {"batch", 8}}};
  GpuMeasured gpu{"0000:1a:00.0", "H100", 650.5, 1e9, 1.5e9, 2e9, 61, {}, {"power cap"}};
  StepDone step{5,
                320,
                2.5,
                0.5,
                1e-3,
                0.25,
                256,
                0.6,
                0.125,
                true,
                2,
                300,
                0.75,
                Routing{2.1, 4, 1.25, 0.1},
                LossParts{2.25, 2.75}};
  return {{1.5, run},
          {1.5, machine},
          {1.5, corpus},
          {1.5, memory},
          {2.5, step},
          {2.5, EvaluationDone{5, 2.25, 128, 0.5}},
          {2.5, CheckpointSaved{5, "c", 4096, 0.01, 0.1}},
          {2.5, CheckpointFailed{6, "disk full"}},
          {2.5, TextGenerated{6, "int ", "x;\n", 3, 0.5}},
          {2.5, NonFinite{7, "head.weight", 2}},
          {2.5, BudgetExceeded{"hours", 1, 1.5}},
          {2.5, gpu},
          {2.5, Message{Level::warning, "slow"}},
          {2.5, EventsLost{12, 30, 41, "cannot write 'events.jsonl'"}},
          {2.5, MlperfLine{MlperfLine::Type::end, "eval_stop", Json(2.5),
                           Json{{"samples_count", 40}}, "f.cpp", 12}},
          {2.5, RunFinished{"steps_done", Json{{"steps", 5}}}}};
}

std::vector<Event> read_all(FileSystem& files, ReadCount* count = nullptr) {
  std::vector<Event> events;
  const ReadCount got =
      read_events(files, "events.jsonl", [&](const Event& event) { events.push_back(event); });
  if (count != nullptr) *count = got;
  return events;
}

TEST(EventReader, ReadsWhatTheSinkWrote) {
  MemoryFileSystem files;
  {
    JsonLinesSink sink(files, "events.jsonl");
    for (const Event& event : one_of_each()) sink.write(event);
  }
  const std::vector<Event> wrote = one_of_each();
  const std::vector<Event> read = read_all(files);
  ASSERT_EQ(read.size(), wrote.size());
  // Every alternative of the variant is there, so a new kind of event is not forgotten.
  ASSERT_EQ(wrote.size(), std::variant_size_v<decltype(Event::body)>);
  for (size_t i = 0; i < wrote.size(); ++i) {
    EXPECT_EQ(wrote[i].body.index(), i);
    EXPECT_EQ(dump_json(to_json(read[i])), dump_json(to_json(wrote[i])));
  }
}

TEST(EventReader, OldAndForeignLinesDoNoHarm) {
  MemoryFileSystem files;
  write_file_atomic(files, "events.jsonl",
                    "{\"event\":\"step_done\",\"step\":3,\"loss\":2.0}\n"
                    "{\"event\":\"step_done\",\"step\":4.0,\"loss\":null,\"mfu\":\"much\"}\n"
                    "{\"event\":\"weather\",\"rain\":true}\n"
                    "\n"
                    "[1, 2]\n"
                    "no json\n"
                    "{\"event\":\"run_started\",\"steps\":\"many\",\"details\":3}\n"
                    "{\"event\":\"step_done\",\"st");
  ReadCount count;
  const std::vector<Event> events = read_all(files, &count);
  EXPECT_EQ(count.events, 3);
  EXPECT_EQ(count.unknown, 1);
  EXPECT_EQ(count.unreadable, 3);
  EXPECT_TRUE(count.last_line_cut);
  ASSERT_EQ(events.size(), 3U);
  const auto& first = std::get<StepDone>(events[0].body);
  EXPECT_EQ(first.step, 3);
  EXPECT_EQ(first.loss, 2.0);
  EXPECT_TRUE(std::isnan(first.gradient_norm));  // not measured is not zero
  const auto& second = std::get<StepDone>(events[1].body);
  EXPECT_EQ(second.step, 4);
  EXPECT_TRUE(std::isnan(second.loss));
  EXPECT_TRUE(std::isnan(second.mfu));
  EXPECT_EQ(std::get<RunStarted>(events[2].body).steps, 0);
}

TEST(EventReader, NumbersOutsideInt64AreRejected) {
  MemoryFileSystem files;
  write_file_atomic(files, "events.jsonl",
                    "{\"event\":\"step_done\",\"step\":18446744073709551610}\n"
                    "{\"event\":\"step_done\",\"step\":9223372036854775807}\n"
                    "{\"event\":\"step_done\",\"step\":1e30}\n");
  const std::vector<Event> events = read_all(files);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(std::get<StepDone>(events[0].body).step, 0);
  EXPECT_EQ(std::get<StepDone>(events[1].body).step, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(std::get<StepDone>(events[2].body).step, 0);
}

TEST(EventReader, AnAbsentFileIsAnError) {
  MemoryFileSystem files;
  EXPECT_THROW(read_all(files), Error);
}

}  // namespace
}  // namespace tutti::telemetry
