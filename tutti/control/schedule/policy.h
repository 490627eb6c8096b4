// What happens to a job while it runs and after its processes have ended: pure decisions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"

namespace tutti::control {

// How the processes of a launch ended.
struct End {
  std::optional<int> exit_code;  // absent: unknown; the processes are gone
  bool started = true;           // false: they never were
  bool out_of_memory = false;    // the system took their memory
  std::string detail;
  int64_t elapsed_ms = 0;
};

struct Verdict {
  std::vector<JobState> path;  // the states to go through, the last one to stay in
  Reason reason = Reason::none;
  std::string detail;
  int64_t pause_ms = 0;  // before it may start again
  int64_t attempts = 0;  // the job's count afterwards
  bool is_incident = false;
};

//   exit code 0   COMPLETED, also where it was asked to stop; not so a deployment
//   asked to stop what that stop says: CANCELLED, TIMEOUT, DEADLINE, or back into the queue
//   75            back into the queue: it saved, to be resumed
//   93, 2         FAILED: it would fail the same way
//   other, lost   (FAILED, NODE_FAIL, OUT_OF_MEMORY where the system says so) back into the line
//   after a pause that doubles, until its attempts are used up; an
//                 attempt that ran for ten minutes or more sets the count back
//
// A deployment has nothing to complete: exit code 0 is what that stop says, or another end.
Verdict judge(const Job& job, const End& end);

// 15 s, doubled with every attempt in a row, at most 15 min.
int64_t pause_after(int64_t attempts);

// Why a running job must be asked to stop, now that it has run `job.elapsed_ms`; none: it need not.
// A job with a time limit is asked a tenth of it, at most a minute, before the limit.
Stop stop_due(const Job& job, const Spend& job_spent, const Budget& project_budget,
              const Spend& project_spent, int64_t now_ms);

// How long after the request a job may take before it is killed. Together with the interval of the
// checks (kChargeIntervalMs and a tick) less than a minute where a budget is used up, also by a job
// that was asked to stop for another reason.
int64_t grace_ms(const Job& job, const Spend& job_spent, const Budget& project_budget,
                 const Spend& project_spent);
inline constexpr int64_t kBudgetGraceMs = 45'000;
inline constexpr int64_t kLongestGraceMs = 120'000;
inline constexpr int64_t kChargeIntervalMs = 5'000;

}  // namespace tutti::control
