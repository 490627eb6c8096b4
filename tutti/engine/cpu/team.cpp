#include "tutti/engine/cpu/team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/doorbell.h"

namespace tutti::engine {

void serve_openmp();  // openmp.cpp

namespace {

constexpr int kMostTeamThreads = 4096;
#ifdef _OPENMP
constexpr bool kThreaded = true;
#else
constexpr bool kThreaded = false;  // oneDNN then runs on libgomp, which has no teams
#endif

int read_default_threads() {
  if (!kThreaded) return 1;
  serve_openmp();
  // A list holds the sizes of nested regions; only the first level has threads here.
  const char* text = std::getenv("OMP_NUM_THREADS");
  const long wanted = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (wanted > 0) return static_cast<int>(std::min<long>(wanted, kMostTeamThreads));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  return std::max(1, CPU_COUNT(&allowed));
}

// Read before main: a rank may bind itself to fewer cores later, and then sets its team size
// itself.
const int default_threads = read_default_threads();

class Team;

struct Region {
  void (*body)(void*) = nullptr;
  void* context = nullptr;
  int size = 1;
  bool within = false;  // nested in a region of several threads
  alignas(64) std::atomic<int> working{0};
  alignas(64) std::atomic<int> at_barrier{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) Doorbell barrier;
};

// The region that this thread works on, and its index there.
struct Membership {
  Region* region = nullptr;
  int number = 0;
};
thread_local Membership membership;
thread_local int wanted_threads = 0;  // 0: the default

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    closing_.store(true);
    for (const auto& helper : helpers_) helper->bell.ring();
    for (const auto& helper : helpers_) helper->thread.join();
  }

  void run(int size, void (*body)(void*), void* context) {
    while (static_cast<int>(helpers_.size()) < size - 1) start_helper();
    region_.body = body;
    region_.context = context;
    region_.size = size;
    region_.next.store(0, std::memory_order_relaxed);
    region_.working.store(size - 1, std::memory_order_relaxed);
    for (int i = 0; i < size - 1; ++i) helpers_[static_cast<size_t>(i)]->bell.ring();
    work(0);
    while (true) {
      const uint32_t seen = done_.rings();
      if (region_.working.load() == 0) break;
      done_.wait(seen);
    }
  }

 private:
  struct alignas(64) Helper {
    Doorbell bell;  // rung once per region
    std::thread thread;
  };

  void start_helper() {
    auto helper = std::make_unique<Helper>();
    const int number = static_cast<int>(helpers_.size()) + 1;
    helper->thread = std::thread([this, number, bell = &helper->bell] { help(number, *bell); });
    helpers_.push_back(std::move(helper));
  }

  void help(int number, Doorbell& bell) noexcept {
    for (uint32_t seen = 0;; ++seen) {
      bell.wait(seen);
      if (closing_.load()) return;
      work(number);
      if (region_.working.fetch_sub(1) == 1) done_.ring();
    }
  }

  void work(int number) noexcept {
    membership = {&region_, number};
    region_.body(region_.context);
    membership = {};
  }

  Region region_;
  alignas(64) Doorbell done_;  // rung by the last helper of a region
  std::atomic<bool> closing_{false};
  std::vector<std::unique_ptr<Helper>> helpers_;
};

// A plain pointer stays readable while other thread-local objects are destroyed; TeamOwner frees
// it.
thread_local Team* team = nullptr;
thread_local bool team_is_gone = false;

struct TeamOwner {
  ~TeamOwner() {
    delete team;
    team = nullptr;
    team_is_gone = true;
  }
};

Team* own_team() {
  if (team == nullptr && !team_is_gone) {
    thread_local TeamOwner owner;
    // A forked child has no helpers. Their memory is leaked, because they may have been using it.
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { team = nullptr; });
    (void)owner;
    team = new Team;  // NOLINT(*-owning-memory)
  }
  return team;
}

}  // namespace

int default_team_threads() { return default_threads; }

int team_threads() {
  if (!kThreaded || in_team()) return 1;
  return wanted_threads > 0 ? wanted_threads : default_threads;
}

void set_team_threads(int threads) {
  TUTTI_CHECK(threads >= 1, "team of {} threads", threads);
  wanted_threads = std::min(threads, kMostTeamThreads);
}

bool in_team() {
  const Region* region = membership.region;
  return region != nullptr && (region->size > 1 || region->within);
}
int team_member() { return membership.number; }
int team_size() { return membership.region == nullptr ? 1 : membership.region->size; }

void run_team(int threads, void (*body)(void*), void* context) {
  const int size = in_team() ? 1 : threads > 0 ? threads : team_threads();
  Team* mine = size > 1 ? own_team() : nullptr;
  if (mine != nullptr) {
    mine->run(size, body, context);
    return;
  }
  // One thread is a region too, so that its index is 0 also within another region.
  Region alone;
  alone.within = in_team();
  const Membership outer = membership;
  membership = {&alone, 0};
  body(context);
  membership = outer;
}

void team_barrier() {
  Region* region = membership.region;
  if (region == nullptr || region->size == 1) return;
  const uint32_t seen = region->barrier.rings();
  if (region->at_barrier.fetch_add(1) + 1 == region->size) {
    region->at_barrier.store(0);
    region->barrier.ring();
    return;
  }
  region->barrier.wait(seen);
}

int64_t team_next() {
  TUTTI_CHECK(membership.region != nullptr, "team_next() called outside of a region");
  return membership.region->next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tutti::engine
