// The states of a job, by Slurm's names and with Slurm's meaning, why a job is in its state as one
// word that scripts can rely on, and which state may follow which.
//
//   PENDING -> CONFIGURING -> RUNNING -> COMPLETED, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY
//                                |-> COMPLETING (asked to stop) -> CANCELLED, PREEMPTED, ...
//   PREEMPTED, NODE_FAIL, FAILED, ... -> REQUEUED -> PENDING
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tutti::control {

enum class JobState {
  pending,        // waits; `Reason` says for what
  configuring,    // owns its nodes, is being started
  running,        // its program runs
  completing,     // asked to stop; owns its nodes until it has ended
  suspended,      // stopped by the system that runs it, keeps its nodes
  completed,      // ended with exit code 0
  cancelled,      // by a person or a limit
  failed,         // ended with another exit code, and is not started again
  timeout,        // its time limit ended it
  node_fail,      // its node or its supervision was lost
  preempted,      // preempted by another job
  out_of_memory,  // the system took its memory
  deadline,       // its deadline passed
  requeued,       // returning to PENDING
};
inline constexpr int kJobStates = 14;

enum class Reason {
  none,
  // of PENDING
  priority,     // others come first
  resources,    // first in line, waits for nodes or cores
  begin_time,   // waits out the pause before another attempt
  held,         // until it is released
  quota_nodes,  // the project has as many nodes in use as it may
  quota_cores,  // ... cores
  quota_jobs,   // ... running jobs
  budget,       // the project has used up its budget
  never_fits,   // more than all nodes of this site have
  site_rule,    // its data may not be here (any more)
  // of ends and requeues
  user_request,     // a person asked
  time_limit,       // its time limit
  deadline_passed,  // its deadline
  job_budget,       // its own budget is used up
  checkpointed,     // exit code 75: saved, to be resumed
  preempted_by,     // by a job of higher priority
  exit_code,        // another exit code; tried again while attempts are left
  attempts_used,    // and none was left
  do_not_restart,   // exit code 93: it would fail the same way
  wrong_recipe,     // exit code 2: the command or recipe is wrong
  launch_failed,    // it could not be started
  node_lost,        // its processes are gone without an exit code
  fenced,           // what ran was of an older generation
  out_of_memory,    // the system took its memory
};

const char* state_name(JobState state);       // "NODE_FAIL"
const char* reason_name(Reason reason);       // "QuotaNodes"
JobState parse_state(std::string_view name);  // throw usage listing the names
Reason parse_reason(std::string_view name);

bool is_final(JobState state);    // nothing follows by itself; may be requeued by hand
bool owns_nodes(JobState state);  // CONFIGURING, RUNNING, COMPLETING, SUSPENDED
bool is_legal(JobState from, JobState to);

}  // namespace tutti::control
