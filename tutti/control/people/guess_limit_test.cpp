#include "tutti/control/people/guess_limit.h"

#include <gtest/gtest.h>

namespace tutti::control {
namespace {

constexpr int64_t kStart = 1'800'000'000'000;

TEST(GuessLimit, CountsPerAccountAndNetwork) {
  GuessLimit limit;
  for (int i = 0; i < kMostGuesses; ++i) {
    EXPECT_EQ(limit.blocked_until_ms("ada", "192.0.2.1", kStart + i), 0);
    limit.add_failure("ada", "192.0.2.1", kStart + i);
  }
  EXPECT_EQ(limit.blocked_until_ms("ada", "192.0.2.1", kStart + 99), kStart + kGuessWindowMs);
  EXPECT_EQ(limit.blocked_until_ms("ada", "192.0.2.2", kStart + 99), 0);
  EXPECT_EQ(limit.blocked_until_ms("bob", "192.0.2.1", kStart + 99), 0);
  EXPECT_EQ(limit.blocked_until_ms("", "192.0.2.1", kStart + 99), 0);
}

TEST(GuessLimit, IsAWindowThatMoves) {
  GuessLimit limit;
  for (int i = 0; i < kMostGuesses; ++i) limit.add_failure("", "2001:db8::1", kStart + i);
  EXPECT_NE(limit.blocked_until_ms("", "2001:db8::ffff", kStart + kGuessWindowMs - 1), 0);
  EXPECT_EQ(limit.blocked_until_ms("", "2001:db8::ffff", kStart + kGuessWindowMs), 0);
  limit.add_failure("", "2001:db8::1", kStart + kGuessWindowMs);
  EXPECT_EQ(limit.blocked_until_ms("", "2001:db8::1", kStart + kGuessWindowMs),
            kStart + 1 + kGuessWindowMs);
}

TEST(GuessLimit, HoldsBoundedMemory) {
  GuessLimit limit;
  for (int i = 0; i < 30'000; ++i) limit.add_failure(std::to_string(i), "192.0.2.1", kStart);
  EXPECT_EQ(limit.blocked_until_ms("1", "192.0.2.1", kStart), 0);
}

}  // namespace
}  // namespace tutti::control
