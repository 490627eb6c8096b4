#include "tutti/data/prepare/ordered_work.h"

#include <atomic>
#include <numeric>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

using Numbers = OrderedWork<int64_t>;

TEST(OrderedWork, KeepsTheOrderForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    for (const int64_t budget : {0, 10, 1000000}) {
      std::vector<int64_t> seen;
      ordered_work<int64_t>(
          50, threads, budget,
          [](int64_t task, const Numbers::Emit& emit) {
            if (task % 7 == 0) sleep_seconds(0.001);
            for (int64_t i = 0; i < task % 4; ++i) emit(task * 10 + i, 3);
          },
          [&](int64_t& block) { seen.push_back(block); });
      std::vector<int64_t> expected;
      for (int64_t task = 0; task < 50; ++task) {
        for (int64_t i = 0; i < task % 4; ++i) expected.push_back(task * 10 + i);
      }
      EXPECT_EQ(seen, expected);
    }
  }
}

TEST(OrderedWork, BoundsWhatWaits) {
  std::atomic<int64_t> waiting{0};
  int64_t most = 0;
  ordered_work<int64_t>(
      40, 3, 100,
      [&](int64_t, const Numbers::Emit& emit) {
        for (int i = 0; i < 20; ++i) {
          emit(1, 10);
          ++waiting;
        }
      },
      [&](int64_t&) {
        most = std::max(most, waiting.load());
        --waiting;
        sleep_seconds(0.0002);
      });
  EXPECT_LE(most, 100 / 10 + 3 + 1);
}

TEST(OrderedWork, TheFirstErrorInOrderWins) {
  for (const int threads : {1, 4}) {
    std::vector<int64_t> seen;
    const std::string message = error_of(ErrorKind::io, [&] {
      ordered_work<int64_t>(
          20, threads, 1000,
          [](int64_t task, const Numbers::Emit& emit) {
            if (task == 3) sleep_seconds(0.02);
            emit(task, 1);
            if (task == 3 || task == 5) fail(ErrorKind::io, "task {}", task);
          },
          [&](int64_t& block) { seen.push_back(block); });
    });
    EXPECT_EQ(message, "task 3");
    EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3}));
  }
}

TEST(OrderedWork, AnErrorOfTheConsumerEndsIt) {
  EXPECT_EQ(error_of(ErrorKind::no_space,
                     [] {
                       ordered_work<int64_t>(
                           1000, 3, 5,
                           [](int64_t task, const Numbers::Emit& emit) { emit(task, 4); },
                           [](int64_t& block) {
                             if (block == 7) fail(ErrorKind::no_space, "full");
                           });
                     }),
            "full");
}

TEST(OrderedWork, NoTaskIsNoWork) {
  ordered_work<int64_t>(
      0, 2, 5, [](int64_t, const Numbers::Emit&) { FAIL(); }, [](int64_t&) { FAIL(); });
}

}  // namespace
}  // namespace tutti::data
