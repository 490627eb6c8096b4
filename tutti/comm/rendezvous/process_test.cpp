// Ranks as processes: this program started again in a role.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/rendezvous/rank_processes.h"
#include "tutti/comm/testing/process_roles.h"

namespace tutti::comm::testing {
namespace {

class Processes : public ::testing::Test {
 protected:
  Processes() {
    std::string pattern = ::testing::TempDir() + "/tutti_comm_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Processes() override { std::filesystem::remove_all(folder_); }

  RankProcesses start(const std::string& role, int64_t ranks) const {
    for (const auto& left : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(left.path());  // of an earlier start
    }
    return {"/proc/self/exe",
            {},
            ranks,
            {{"TUTTI_TEST_ROLE", role}, {"TUTTI_TEST_FOLDER", folder_}, {"GTEST_OUTPUT", ""}}};
  }
  std::string message(int64_t rank) const {
    std::ifstream file(fmt::format("{}/{}", folder_, rank));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void await_ready(int64_t ranks) const {
    const double end = monotonic_seconds() + 60;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      while (!std::filesystem::exists(fmt::format("{}/{}.ready", folder_, rank)) &&
             monotonic_seconds() < end) {
        sleep_seconds(0.005);
      }
    }
  }
  std::string folder_;
};

TEST_F(Processes, EveryCollectiveInSharedAndPrivateMemory) {
  for (const int64_t ranks : {2, 3, 5}) {
    RankProcesses processes = start("collectives", ranks);
    std::vector<RankExit> exits;
    ASSERT_TRUE(processes.wait_all(60, exits));
    ASSERT_EQ(static_cast<int64_t>(exits.size()), ranks);
    for (const RankExit& exit : exits) {
      EXPECT_EQ(exit.code, role_done) << message(exit.rank);
      EXPECT_EQ(exit.signal, 0);
    }
  }
}

TEST_F(Processes, KilledRanksAreReportedByTheOthers) {
  for (const int64_t victim : {0, 2}) {
    // Only names of our own: other programs, and runs with peer copies (tutti-*), come and go.
    const auto entries = [] {
      std::set<std::string> names;
      for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        const std::string name = entry.path().filename();
        const size_t at = name.find("tutti");
        if (at != std::string::npos && name.compare(at, 6, "tutti-") != 0) names.insert(name);
      }
      return names;
    };
    const auto before = entries();
    {
      RankProcesses processes = start("reduce_forever", 3);
      await_ready(3);
      processes.send_signal(victim, SIGKILL);
      std::vector<RankExit> exits;
      ASSERT_TRUE(processes.wait_all(20, exits));  // a reduction itself waits for ever
      for (const RankExit& exit : exits) {
        if (exit.rank == victim) {
          EXPECT_EQ(exit.signal, SIGKILL);
          continue;
        }
        EXPECT_EQ(exit.code, role_peer_error);
        EXPECT_NE(message(exit.rank).find(fmt::format("rank {} was lost: its process", victim)),
                  std::string::npos)
            << message(exit.rank);
        EXPECT_NE(message(exit.rank).find("all_reduce(sum, 262144 f32), call "), std::string::npos);
      }
    }
    EXPECT_EQ(entries(), before) << "nothing is left behind";
  }
}

TEST_F(Processes, AFrozenRankIsWaitedFor) {
  RankProcesses processes = start("reduce_for_a_while", 3);
  await_ready(3);
  processes.send_signal(1, SIGSTOP);
  sleep_seconds(2);
  processes.send_signal(1, SIGCONT);
  std::vector<RankExit> exits;
  ASSERT_TRUE(processes.wait_all(60, exits));
  for (const RankExit& exit : exits) EXPECT_EQ(exit.code, role_done) << message(exit.rank);
}

TEST_F(Processes, AProgramThatDoesNotExistIsAnError) {
  EXPECT_THROW(RankProcesses("/nowhere/tutti", {}, 2), Error);
}

}  // namespace
}  // namespace tutti::comm::testing
