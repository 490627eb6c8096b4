#include "tutti/base/doorbell.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace tutti {
namespace {

// Tests run with passive waiting, and the policy is read once: these also spin.
[[maybe_unused]] const int without_policy = unsetenv("OMP_WAIT_POLICY");

TEST(Doorbell, AnEarlierRingIsNotMissed) {
  Doorbell bell;
  const uint32_t seen = bell.rings();
  bell.ring();
  bell.wait(seen);
  EXPECT_TRUE(bell.wait(seen, 3600));
}

TEST(Doorbell, SaysThatNoRingCame) {
  Doorbell bell;
  EXPECT_FALSE(bell.wait(bell.rings(), 0.001));
  EXPECT_FALSE(bell.wait(bell.rings(), 0, false));
}

// Each turn waits for the other thread's: a lost ring would hang.
TEST(Doorbell, ThreadsTakeTurns) {
  constexpr int kTurns = 20'000;
  Doorbell bells[2];
  int turns = 0;  // written by the thread whose turn it is
  const auto play = [&](int player) {
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      if (player == 1 || turn > 0) bells[player].wait(player == 1 ? turn : turn - 1);
      ++turns;
      bells[1 - player].ring();
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(turns, 2 * kTurns);
}

TEST(Doorbell, WakesAllThatWait) {
  Doorbell bell;
  std::atomic<int> woken{0};
  std::thread threads[4];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      bell.wait(0);
      ++woken;
    });
  }
  bell.ring();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken, 4);
}

TEST(Doorbell, SharedMemoryIsSharedByTwoProcesses) {
  void* memory =
      mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bell = static_cast<Doorbell*>(memory);
  const pid_t child = fork();
  if (child == 0) {
    bell->ring();
    _exit(0);
  }
  bell->wait(0);
  EXPECT_EQ(bell->rings(), 1U);
  waitpid(child, nullptr, 0);
  munmap(memory, sizeof(Doorbell));
}

}  // namespace
}  // namespace tutti
