#include "tutti/telemetry/sinks/progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tutti/telemetry/testing/test_support.h"

namespace tutti::telemetry {
namespace {

using testing::Screen;

struct Fixture {
  Screen screen;
  double now = 100;
  ProgressOptions options(bool terminal, int columns = 80) {
    ProgressOptions out;
    out.console = screen.console(terminal, columns);
    out.clock = [this] { return now; };
    return out;
  }
};

TEST(Progress, ShortWorkShowsNothing) {
  Fixture fixture;
  Progress progress("prepare", 10, "documents", fixture.options(true));
  fixture.now += 1;
  progress.advance(10);
  progress.finish();
  EXPECT_EQ(fixture.screen.take(), "");
}

TEST(Progress, TerminalShowsBarRateAndTimeLeft) {
  Fixture fixture;
  Progress progress("verify", 4 << 20, "bytes", fixture.options(true));
  fixture.now += 2;
  progress.advance(1 << 20);
  EXPECT_EQ(fixture.screen.take(),
            "\r\x1b[Kverify [##......]  25%  1.00 MiB of 4.00 MiB  512.00 KiB/s  "
            "6.0 s left");
  progress.advance(1 << 20);  // too soon for another drawing
  EXPECT_EQ(fixture.screen.take(), "");
  fixture.now += 2;
  progress.advance(2 << 20);
  EXPECT_EQ(fixture.screen.take(),
            "\r\x1b[Kverify [########] 100%  4.00 MiB of 4.00 MiB  1.00 MiB/s");
  progress.finish();
  EXPECT_EQ(fixture.screen.take(), "\r\x1b[Kverify: 4.00 MiB in 4.0 s (1.00 MiB/s)\n");
}

TEST(Progress, ANarrowTerminalLosesTheBar) {
  Fixture fixture;
  Progress progress("verify", 100, "shards", fixture.options(true, 40));
  fixture.now += 2;
  progress.advance(50);
  EXPECT_EQ(fixture.screen.take(), "\r\x1b[Kverify  50%  50 shards of 100 shards  2");
}

TEST(Progress, PlainLinesEveryFewSeconds) {
  Fixture fixture;
  Progress progress("prepare", 1000, "documents", fixture.options(false));
  for (int second = 1; second <= 10; ++second) {
    fixture.now += 1;
    progress.advance(100);
  }
  progress.finish();
  EXPECT_EQ(fixture.screen.take(),
            "prepare  20%  200 documents of 1,000 documents  100 documents/s  8.0 s left\n"
            "prepare  70%  700 documents of 1,000 documents  100 documents/s  3.0 s left\n"
            "prepare: 1,000 documents in 10.0 s (100 documents/s)\n");
}

TEST(Progress, UnknownTotalShowsAmountAndRate) {
  Fixture fixture;
  Progress progress("read", 0, "bytes", fixture.options(false));
  fixture.now += 4;
  progress.advance(8192);
  EXPECT_EQ(fixture.screen.take(), "read 8.00 KiB  2.00 KiB/s\n");
}

TEST(Progress, AnUnfinishedBarIsRemoved) {
  Fixture fixture;
  {
    Progress progress("verify", 10, "shards", fixture.options(true));
    fixture.now += 3;
    progress.advance(1);
    fixture.screen.take();
  }
  EXPECT_EQ(fixture.screen.take(), "\r\x1b[K");
}

TEST(Progress, ThreadsAdvanceConcurrently) {
  const Screen screen;
  ProgressOptions options;
  options.console = screen.console(false);
  options.quiet_seconds = 0;
  options.plain_interval_seconds = 0;
  Progress progress("count", 4000, "items", options);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&progress] {
      for (int i = 0; i < 1000; ++i) progress.advance(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  screen.take();
  progress.finish();
  EXPECT_EQ(screen.take().rfind("count: 4,000 items in ", 0), 0U);
}

}  // namespace
}  // namespace tutti::telemetry
