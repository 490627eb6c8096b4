// A cluster in simulated time for tests of the controller: launches take a while to begin, run,
// end with one code or another, hang, and vanish with their nodes; messages to them may come late.
// It notes what really ran where, which is what the records are held against.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/control/launches/launcher.h"

namespace tutti::control {

class SimulatedWorld final : public Launcher {
 public:
  explicit SimulatedWorld(uint64_t seed) : key_(stream_key(seed, "world")) {}

  void start(const LaunchOrder& order) override;
  LaunchStatus status(const LaunchKey& key) override;
  void stop(const LaunchKey& key) override;
  void kill(const LaunchKey& key) override;

  // Steady time; what was due meanwhile has happened.
  void advance_to(int64_t time_ms);
  int64_t now_ms() const { return now_ms_; }
  // The next moment at which something happens by itself; absent: never.
  std::optional<int64_t> next_event_ms() const;

  // A random running launch vanishes without a word.
  void lose_one();
  bool calm = false;  // nothing goes wrong from now on

  // A launch that ran, whether or not the records know.
  struct Ran {
    int64_t job = 0;
    int64_t generation = 0;
    std::vector<Claim> claims;
    int64_t began_ms = 0;
    int64_t ended_ms = -1;  // -1: runs
    std::optional<int> exit_code;
  };
  const std::vector<Ran>& history() const { return history_; }

  uint64_t draw(uint64_t below) { return random_u64(key_, count_++) % below; }

 private:
  struct One {
    LaunchOrder order;
    int64_t begin_at_ms = 0;  // delayed
    bool begun = false;
    bool gone = false;  // ended or lost
    bool killed = false;
    bool logged = false;
    bool hangs = false;  // ignores its stop request
    int64_t ends_at_ms = 0;
    int code = 0;
    size_t ran = 0;
  };
  using Id = std::pair<int64_t, int64_t>;  // job, generation
  One* find(const LaunchKey& key);
  void begin(One& one);
  void end(One& one, std::optional<int> code, int64_t at_ms);

  uint64_t key_;
  uint64_t count_ = 0;
  int64_t now_ms_ = 0;
  std::map<Id, One> launches_;
  std::map<int64_t, int64_t> newest_;   // generation by job
  std::map<int64_t, int64_t> left_ms_;  // work that a job still has
  std::vector<Ran> history_;
};

}  // namespace tutti::control
