// A job: its request and its state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/data_rule.h"
#include "tutti/control/jobs/deployment.h"
#include "tutti/control/jobs/job_state.h"
#include "tutti/control/ledger/spend.h"

namespace tutti::control {

// What the planner expects of a job; 0: unknown.
struct Forecast {
  bool operator==(const Forecast&) const = default;
  int64_t milliseconds = 0;
  int64_t micro_usd = 0;
  int64_t micro_kwh = 0;
  std::string basis;  // where the figures are from
};

struct JobRequest {
  bool operator==(const JobRequest&) const = default;
  std::string name;
  std::string project;
  std::vector<std::string> command;       // words after `tutti`: "train", RECIPE, ...
  std::string folder;                     // working directory
  std::string run_folder;                 // of the run; empty: none
  std::string data_class;                 // the strictest that its data state (data_rule.h)
  std::string data_source;                // what states it; empty: the recipe
  std::string unlabelled_data;            // the first of its data that state no class; empty: none
  std::vector<std::string> guarded_keys;  // that its recipe sets (guarded_keys.h)
  int64_t nodes = 1;
  int64_t cores = 0;  // of each node; 0: all that it has
  int64_t gpus = 0;   // of each node
  int64_t priority = 0;
  int64_t deadline_ms = 0;    // wall clock; 0: none
  int64_t time_limit_ms = 0;  // of one attempt; 0: none
  int64_t max_attempts = 4;   // times that it may fail before it is given up
  bool preemptible = true;
  Budget budget;
  Forecast forecast;
  std::optional<Deployment> deployment;  // absent: the job trains
  std::string client_key;  // submitting twice with the same key makes one job; empty: no key
};

DataLabel label_of(const JobRequest& request);
void set_label(JobRequest& request, const DataLabel& label);
inline constexpr const char* kDeploy =
    "deploy";  // in the audit log: the submission of a deployment
inline constexpr const char* kRelabel =
    "relabel";  // in the audit log: the class of its data has risen

// Why a running job was asked to stop.
enum class Stop { none, cancel, requeue, preempt, time_limit, deadline, job_budget, budget };
Reason reason_of(Stop stop);

struct Job {
  int64_t id = 0;
  std::string user;
  JobRequest request;
  JobState state = JobState::pending;
  Reason reason = Reason::none;
  std::string detail;  // for people: "exit code 3"
  int64_t priority = 0;
  bool held = false;
  Stop stop = Stop::none;
  int64_t generation = 0;  // of its launches; the newest alone may run
  int64_t attempts = 0;    // that failed
  int64_t requeues = 0;    // saved or preempted
  int64_t submitted_ms = 0;
  int64_t eligible_ms = 0;  // not before
  int64_t started_ms = 0;   // of the newest launch
  int64_t ended_ms = 0;
  int64_t elapsed_ms = 0;  // of the newest launch, on a clock that never jumps
  int64_t told_ms = -1;    // `elapsed_ms` when it was asked to stop; -1: not yet
  int64_t run_ms = 0;      // of all launches that ended
  std::optional<int> exit_code;
};

// A part of a node that a job has.
struct Claim {
  bool operator==(const Claim&) const = default;
  int64_t job = 0;
  int64_t generation = 0;
  std::string node;
  int64_t cores = 0;
  int64_t gpus = 0;
};

struct Node {
  std::string name;
  int64_t cores = 0;
  int64_t gpus = 0;
  bool up = true;
  bool drained = false;  // takes no new jobs
  std::string reason;
};

// A launch that ended or runs.
struct Launch {
  int64_t job = 0;
  int64_t generation = 0;
  std::vector<std::string> nodes;
  Rate rate;
  int64_t started_ms = 0;
  std::optional<int64_t> ended_ms;
  int64_t elapsed_ms = 0;
  std::optional<int64_t> exit_code;
  std::string outcome;
};

inline constexpr const char* kFaultCause = "Fault";

struct Incident {
  int64_t id = 0;
  int64_t job = 0;
  int64_t generation = 0;
  int64_t time_ms = 0;
  std::string node;
  std::string cause;  // reason_name, or "Fault": of a part of the launch, which recovered by itself
  std::string action;  // "requeued", "given up"
  std::string detail;
  int64_t lost_ms = 0;  // work since the last known save, at most
  std::string name;     // of the launch's own report; empty: the end of a launch
  int64_t rank = -1;    // -1: not of one rank
  int64_t lost_steps = 0;
  int64_t micro_usd = 0;  // of the lost work
  int64_t micro_kwh = 0;
};

}  // namespace tutti::control
