#include "tutti/telemetry/trace.h"

#include <gtest/gtest.h>

#include <thread>

#include "tutti/base/testing/memory_file.h"

namespace tutti::telemetry {
namespace {

struct Span {
  double begin = 0;
  double end = 0;
};

Span span(const Json& event) {
  const auto begin = event["ts"].get<double>();
  return {begin, begin + event["dur"].get<double>()};
}

TEST(Trace, WritesWhatPerfettoReads) {
  MemoryFileSystem files;
  Trace trace("tutti rank 3", 3);
  trace.name_thread(0, "compute");
  trace.add({"step", "train", 1000.5, 0.25, 0, {{"step", 7}}});
  trace.add({"gemm \"qkv\"", "op", 1000.75, 0.0000015, 0});
  trace.write(files, "trace.json");

  const Json root = parse_json(read_file(files, "trace.json"), "trace.json");
  const Json& events = root["traceEvents"];
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["args"]["name"], "tutti rank 3");
  EXPECT_EQ(events[1]["name"], "thread_name");
  EXPECT_EQ(events[1]["args"]["name"], "compute");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["name"], "step");
  EXPECT_EQ(events[2]["cat"], "train");
  EXPECT_EQ(events[2]["pid"], 3);
  EXPECT_EQ(events[2]["tid"], 0);
  EXPECT_EQ(events[2]["ts"], 0.0);  // microseconds from the earliest event
  EXPECT_EQ(events[2]["dur"], 250000.0);
  EXPECT_EQ(events[2]["args"]["step"], 7);
  EXPECT_EQ(events[3]["name"], "gemm \"qkv\"");
  EXPECT_EQ(events[3]["ts"], 250000.0);
  EXPECT_EQ(events[3]["dur"], 1.5);
  EXPECT_FALSE(events[3].contains("args"));
}

// Children that touch their parent's ends, at times that do not round evenly.
TEST(Trace, NestingSurvivesRounding) {
  Trace trace("tutti");
  const double begin = 123456.7890123456;
  const double third = 0.0010000007 / 3;
  trace.add({"parent", "", begin, 3 * third, 0});
  for (int i = 0; i < 3; ++i) trace.add({"child", "", begin + i * third, third, 0});
  const Json root = trace.to_json();
  const Json& events = root["traceEvents"];
  ASSERT_EQ(events.size(), 5U);
  const Span parent = span(events[1]);
  double at = parent.begin;
  for (size_t i = 2; i < 5; ++i) {
    const Span child = span(events[i]);
    EXPECT_GE(child.begin, at - 1e-9);
    EXPECT_LE(child.end, parent.end + 1e-9);
    at = child.end;
  }
}

TEST(Trace, AnEmptyTraceIsValid) { EXPECT_EQ(Trace("tutti").to_json()["traceEvents"].size(), 1U); }

TEST(Trace, ThreadsAddConcurrently) {
  Trace trace("tutti");
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&trace, t] {
      for (int i = 0; i < 100; ++i) trace.add({"e", "", i * 1e-3, 1e-3, t});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.to_json()["traceEvents"].size(), 401U);
}

}  // namespace
}  // namespace tutti::telemetry
