#include "tutti/control/jobs/job_state.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr std::array<const char*, kJobStates> kStateNames = {
    "PENDING", "CONFIGURING", "RUNNING",   "COMPLETING", "SUSPENDED",     "COMPLETED", "CANCELLED",
    "FAILED",  "TIMEOUT",     "NODE_FAIL", "PREEMPTED",  "OUT_OF_MEMORY", "DEADLINE",  "REQUEUED"};

constexpr std::array kReasonNames = {
    "None",         "Priority",     "Resources", "BeginTime",      "JobHeld",
    "QuotaNodes",   "QuotaCores",   "QuotaJobs", "Budget",         "NeverFits",
    "SiteRule",     "UserRequest",  "TimeLimit", "DeadlinePassed", "JobBudget",
    "Checkpointed", "Preempted",    "ExitCode",  "AttemptsUsed",   "DoNotRestart",
    "WrongRecipe",  "LaunchFailed", "NodeLost",  "Fenced",         "OutOfMemory"};
static_assert(kReasonNames.size() == static_cast<size_t>(Reason::out_of_memory) + 1);

// A set of states as bits.
constexpr unsigned bits(std::initializer_list<JobState> states) {
  unsigned set = 0;
  for (const JobState state : states) set |= 1U << static_cast<int>(state);
  return set;
}

constexpr unsigned followers(JobState from) {
  using enum JobState;
  // How a running job can end. A job that was asked to stop may still end by itself.
  constexpr unsigned ends = bits({completed, cancelled, failed, timeout, node_fail, preempted,
                                  out_of_memory, deadline, requeued});
  switch (from) {
    case pending: return bits({configuring, cancelled, deadline, failed});
    case configuring: return bits({running, completing, cancelled, failed, node_fail, requeued});
    case running: return bits({completing, suspended}) | ends;
    case completing: return ends;
    case suspended: return bits({running, completing, cancelled, node_fail});
    case cancelled:
    case failed:
    case timeout:
    case node_fail:
    case preempted:
    case out_of_memory:
    case deadline: return bits({requeued});
    case requeued: return bits({pending});
    case completed: return 0;
  }
  return 0;
}

template <size_t N>
size_t index_of(const std::array<const char*, N>& names, std::string_view name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    const std::vector<std::string> known(names.begin(), names.end());
    fail(ErrorKind::usage, "'{}' is not a job {}; known: {}", name, what, join(known, ", "));
  }
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

const char* state_name(JobState state) { return kStateNames.at(static_cast<size_t>(state)); }
const char* reason_name(Reason reason) { return kReasonNames.at(static_cast<size_t>(reason)); }

JobState parse_state(std::string_view name) {
  return static_cast<JobState>(index_of(kStateNames, name, "state"));
}

Reason parse_reason(std::string_view name) {
  return static_cast<Reason>(index_of(kReasonNames, name, "reason"));
}

bool is_final(JobState state) {
  using enum JobState;
  return (bits({completed, cancelled, failed, timeout, node_fail, preempted, out_of_memory,
                deadline}) >>
          static_cast<int>(state)) &
         1U;
}

bool owns_nodes(JobState state) {
  using enum JobState;
  return (bits({configuring, running, completing, suspended}) >> static_cast<int>(state)) & 1U;
}

bool is_legal(JobState from, JobState to) { return (followers(from) >> static_cast<int>(to)) & 1U; }

}  // namespace tutti::control
