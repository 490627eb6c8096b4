#include "tutti/engine/cpu/team.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tutti/engine/cpu/parallel.h"

namespace tutti::engine {
namespace {

std::vector<int> members_of(int threads) {
  std::vector<int> calls(static_cast<size_t>(threads), 0);
  on_team(threads, [&] {
    EXPECT_EQ(team_size(), threads);
    calls[static_cast<size_t>(team_member())] += 1;
  });
  return calls;
}

TEST(Team, EachMemberRunsTheBodyOnce) {
  for (const int threads : {1, 2, 5, 3, 1, 4}) {
    EXPECT_EQ(members_of(threads), std::vector<int>(static_cast<size_t>(threads), 1));
  }
  EXPECT_FALSE(in_team());
  EXPECT_EQ(team_member(), 0);
  EXPECT_EQ(team_size(), 1);
}

TEST(Team, ManyShortRegionsRunCompletely) {
  std::vector<int64_t> sums(3, 0);
  int64_t expected = 0;
  for (int i = 0; i < 20'000; ++i) {
    const int threads = 1 + i % 3;
    on_team(threads, [&] { sums[static_cast<size_t>(team_member())] += i; });
    expected += int64_t{threads} * i;
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], expected);
}

TEST(Team, NestedRegionsHaveOneThread) {
  std::atomic<int> inner{0};
  on_team(2, [&] {
    const int outside = team_member();
    EXPECT_EQ(team_threads(), 1);
    on_team(2, [&] {
      EXPECT_EQ(team_size(), 1);
      EXPECT_EQ(team_member(), 0);
      EXPECT_TRUE(in_team());
      ++inner;
    });
    EXPECT_EQ(team_member(), outside);
    EXPECT_EQ(team_size(), 2);
  });
  EXPECT_EQ(inner, 2);
}

TEST(Team, BarrierWaitsForAllMembers) {
  constexpr int kThreads = 3;
  constexpr int kPhases = 2'000;
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  on_team(kThreads, [&] {
    for (int phase = 1; phase <= kPhases; ++phase) {
      ++arrived;
      team_barrier();
      if (arrived.load() < phase * kThreads) ++early;
      team_barrier();
    }
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(arrived, kThreads * kPhases);
}

TEST(Team, EveryThreadHasItsOwnTeamAndSize) {
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> owners;
  for (int owner = 1; owner <= 4; ++owner) {
    owners.emplace_back([&, owner] {
      set_team_threads(owner);
#ifdef _OPENMP
      EXPECT_EQ(team_threads(), owner);
#endif
      for (int i = 0; i < 500; ++i) {
        on_team(owner, [&] { sum.fetch_add(1, std::memory_order_relaxed); });
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(sum, 500 * (1 + 2 + 3 + 4));
}

TEST(Team, EachTaskRunsOnce) {
  set_team_threads(3);
  std::vector<int> done(1'000, 0);
  for (int round = 0; round < 3; ++round) {
    parallel_tasks(1'000, [&](int64_t index, int) { done[static_cast<size_t>(index)] += 1; });
  }
  EXPECT_EQ(done, std::vector<int>(1'000, 3));
  set_team_threads(default_team_threads());
}

#ifndef __SANITIZE_THREAD__
TEST(Team, ForkedChildHasItsOwnTeam) {
  members_of(2);
  const pid_t child = fork();
  if (child == 0) _exit(members_of(3) == std::vector<int>(3, 1) ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

#ifdef _OPENMP
// oneDNN's calls must not reach libgomp, except those that need no team.
TEST(Team, OneDnnRunsOnTeams) {
  struct Found {
    std::vector<std::string> names;
  } found;
  const auto look = [](dl_phdr_info* info, size_t, void* data) {
    if (std::strstr(info->dlpi_name, "libdnnl") == nullptr) return 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    const uint32_t* hash = nullptr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
      const auto* entry =
          reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
      for (; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_SYMTAB) {
          symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_STRTAB) {
          strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_GNU_HASH) {
          hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
        }
      }
    }
    if (symbols == nullptr || strings == nullptr || hash == nullptr) return 0;
    // hash[1]: the first symbol that the library defines; undefined ones come before it.
    for (uint32_t i = 1; i < hash[1]; ++i) {
      const std::string name = strings + symbols[i].st_name;
      if (name.rfind("GOMP_", 0) == 0 || name.rfind("omp_", 0) == 0) {
        static_cast<Found*>(data)->names.push_back(name);
      }
    }
    return 0;
  };
  dl_iterate_phdr(look, &found);
  EXPECT_FALSE(found.names.empty());
  Dl_info here = {};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&run_team), &here), 0);
  for (const std::string& name : found.names) {
    if (name.rfind("GOMP_critical", 0) == 0 || name.find("_lock") != std::string::npos) continue;
    Dl_info there = {};
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, name.c_str()), &there), 0) << name;
    EXPECT_EQ(there.dli_fbase, here.dli_fbase) << name << " resolves to " << there.dli_fname;
  }
}
#endif

}  // namespace
}  // namespace tutti::engine
