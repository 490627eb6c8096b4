#include "tutti/plan/in_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tutti::plan {
namespace {

TEST(InParallel, EveryPieceIsDoneOnce) {
  for (const int threads : {0, 1, 3, 40}) {
    for (const size_t count : {0U, 1U, 2U, 100U}) {
      std::vector<std::atomic<int>> times(count);
      size_t reported = 0;
      in_parallel(
          count, threads, [&](size_t piece) { ++times[piece]; },
          [&](size_t finished) {
            EXPECT_GE(finished, reported);
            reported = finished;
          });
      for (const std::atomic<int>& each : times) EXPECT_EQ(each, 1);
      EXPECT_EQ(reported, count) << threads;
    }
  }
}

TEST(InParallel, TheLowestFailureIsThrownAndNothingElseStarts) {
  for (const int threads : {1, 4}) {
    std::atomic<int> started = 0;
    try {
      in_parallel(
          1000, threads,
          [&](size_t piece) {
            ++started;
            throw std::runtime_error(std::to_string(piece));
          },
          [](size_t) {});
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "0");
    }
    EXPECT_LE(started, threads);
  }
}

TEST(InParallel, TheProgressCallbackCanEndIt) {
  std::atomic<bool> ended = false;
  std::atomic<int> started = 0;
  EXPECT_THROW(in_parallel(
                   1000, 2,
                   [&](size_t) {
                     ++started;
                     do {
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     } while (!ended);
                   },
                   [&](size_t) {
                     ended = true;
                     throw std::runtime_error("interrupted");
                   }),
               std::runtime_error);
  EXPECT_LT(started, 1000);
}

}  // namespace
}  // namespace tutti::plan
