// The controller: executes the decisions of control/schedule/schedule.h and
// control/schedule/policy.h. It keeps no state in memory: every step begins with the database's
// state and ends with a transaction. It may be killed between any two of them; the next one
// continues from there, because
//
//   - a job gets its nodes and a new generation in one transaction, before anything is started;
//   - starting, stopping and killing a launch may be repeated (control/launches/launcher.h);
//   - a launch of an older generation than the newest one never starts.
//
// Users write to the same database through control/jobs/requests.h while it runs. One controller at
// a time: its process holds a lock (ProcessLock) while it lives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tutti/control/launches/launcher.h"
#include "tutti/control/schedule/schedule.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

struct TickResult {
  int64_t waiting = 0;
  int64_t active = 0;
  int64_t startable = 0;  // of those that wait, without anything but time, or checks of
                          // nodes, having to change
  int64_t changes = 0;    // transitions
};

class Controller {
 public:
  // What the data of a job state now, right before a launch; absent: unknown.
  using Label = std::function<std::optional<DataLabel>(const Job&)>;
  // `ended` is called for jobs that will never run again, at least once where nothing is killed.
  Controller(Database& database, Launcher& launcher, std::function<void(const Job&)> ended = {},
             Label label = {})
      : database_(database),
        launcher_(launcher),
        ended_(std::move(ended)),
        label_(std::move(label)) {}

  // One round: polls running jobs, books their cost, ends what must end, starts what may start.
  // `now_ms` is the wall clock, used for dates, deadlines and pauses only: how long things ran is
  // the launcher's to say.
  TickResult tick(int64_t now_ms);

 private:
  void look_after(int64_t job, int64_t now_ms);
  void give_up_waiting(Job& job, int64_t now_ms);
  void observe_running(Job& job, const LaunchStatus& status, int64_t now_ms);
  void finish(Job& job, const LaunchStatus& status, int64_t now_ms);
  void begin(const Start& start, int64_t now_ms);
  void preempt(const Preemption& preemption, int64_t now_ms);
  void expire(int64_t job, int64_t now_ms);
  void launch(const Job& job, int64_t now_ms);
  // Whether the launcher did it; else what was wrong is noted on the job.
  bool attempt(const Job& job, const std::function<void()>& call);
  void record_detail(const Job& job, const std::string& detail);
  void pass_over(const LaunchKey& key, const LaunchStatus& status, int64_t now_ms);
  void move(Job& job, JobState to, Reason reason, const std::string& detail, int64_t now_ms,
            const Json& more = Json::object());
  LaunchOrder order_of(const Job& job, int64_t now_ms);

  Database& database_;
  Launcher& launcher_;
  const std::function<void(const Job&)> ended_;
  const Label label_;
  TickResult result_;
};

// Whether no job is active or could start without anything but time, or the checks of nodes that
// are out of use, having to change.
bool is_idle(Database& database, int64_t now_ms);

// What the scheduler looks at, as the database has it now.
Snapshot read_snapshot(Database& database, int64_t now_ms);

LaunchKey key_of(const Job& job);  // of its newest launch

}  // namespace tutti::control
