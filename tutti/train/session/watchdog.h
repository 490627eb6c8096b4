// Monitors one rank and, through what ranks publish, the others: a thread that polls every tenth of
// a second.
//
// Hangs. What a rank does has a limit: a step max(10 s, 3 times the 99th percentile of the steps so
// far), anything else and the first steps ten minutes; the caller may say another for steps and for
// pieces of an evaluation. Time counts only while this rank runs, so that a machine that was paused
// as a whole is not a hang. When the limit is over while a rank waits for another, the world is
// aborted, for a reason that names the rank that keeps the others waiting, what it is doing, and
// the collective they wait in. A rank of this host whose watchdog does not tick is named alone, in
// whatever group others wait for it.
//
// Stops. What the system says is stopped (SIGSTOP) is not slow, whatever it was doing: the others
// wait for it kStoppedLimitSeconds, or as long as the caller said of a step, in any phase. One that
// does not tick and is not known to be stopped (a frozen container, a starved process) has the time
// of a step.
//
// Deaths. A rank that computes learns of the end of another in its next call. Where that takes too
// long, or something waits for files that will not come, the watchdog says why and ends the
// process.
//
// Pauses. A rank that did not run for over two seconds although it wanted to (stopped, migrated,
// starved) counts that time, for the session to report.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/rendezvous/rank_board.h"
#include "tutti/comm/world/world.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::train {

// That others wait for a rank which is stopped; a limit of the caller's takes its place.
inline constexpr double kStoppedLimitSeconds = 10;

struct WatchdogOptions {
  double limit_seconds = 0;  // of steps and evaluations; 0: as above
  // The process ends with exit_failed when the world has failed and this rank has not come to an
  // end within `patience_seconds`. Not where ranks are threads.
  bool ends_process = false;
  double patience_seconds = 3;
};

class Watchdog {
 public:
  Watchdog(comm::World& world, WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // This rank begins something, whose time counts from now on.
  void enter(comm::RankPhase phase, int64_t step);
  void enter(const spec::Action& action) { board_.enter(world_.local_rank(), action); }
  void step_done(double seconds);

  double limit_seconds() const;  // of a step, as of now
  double take_frozen_seconds();  // since it was asked last
  std::string where() const;     // what this rank is doing
  // What those ranks of this host were doing that are gone or keep others waiting, for messages;
  // empty when there are none.
  std::string scene() const;

 private:
  void watch();
  void look(double awake_seconds);
  double limit_of(comm::RankPhase phase) const;
  std::string hang_text(bool& a_rank_waits) const;
  void note_silence(double awake_seconds);
  // A rank of this host that does not tick, for as long; `stopped`: of which the system says so.
  bool a_rank_is_silent(double seconds, bool stopped) const;

  comm::World& world_;
  const WatchdogOptions options_;
  comm::RankBoard board_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stop_ = false;
  comm::RankPhase phase_ = comm::RankPhase::starting;
  double awake_seconds_ = 0;  // in this phase
  double frozen_seconds_ = 0;
  double failed_seconds_ = 0;
  std::deque<double> steps_;  // seconds, the latest
  struct Silence {
    double seen_seconds = 0;   // as the board says
    double awake_seconds = 0;  // for which that has been the same
    bool stopped = false;      // as the system says
  };
  std::vector<Silence> silence_;  // of every rank of this host

  std::thread thread_;  // last: uses all of the above
};

}  // namespace tutti::train
