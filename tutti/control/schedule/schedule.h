// Which job starts next, where, and which is preempted: a pure function of a snapshot. It reads no
// clock, no file and no database, so that it can be tried on any history, and asked "when would
// this job start?" by playing on.
//
// Order: priority (a point is added per hour of waiting, so that no job starves), then the nearest
// deadline, then the order of submission. A job gets all its nodes at once or none. The first that
// does not fit is promised the earliest moment at which it will, by the expected ends of what runs;
// others may go before it only where that does not move this moment (backfill). A job of higher
// priority than running preemptible ones, which would fit in their place, has them preempted, the
// lowest and youngest first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/ledger/account_table.h"

namespace tutti::control {

struct ProjectState {
  Project project;
  Spend spent;
};

struct Snapshot {
  int64_t now_ms = 0;
  std::vector<Job> jobs;  // live ones, in the order of submission
  std::vector<Claim> claims;
  std::vector<Node> nodes;
  std::map<std::string, ProjectState> projects;
  SitePolicy policy;
  // When running jobs end, as far as their runs show it; of others their forecasts count. Only
  // expected_start_ms asks.
  std::map<int64_t, int64_t> ends_ms = {};
};

struct Start {
  int64_t job = 0;
  std::vector<Claim> claims;  // with the next generation
};
struct Preemption {
  int64_t job = 0;
  int64_t for_job = 0;
};
struct Wait {
  int64_t job = 0;
  Reason reason = Reason::none;
  std::string detail;
  size_t ahead = 0;  // jobs before it: the first so many of Schedule::line
};
struct Schedule {
  std::vector<Start> starts;
  std::vector<Preemption> preemptions;
  std::vector<Wait> waits;    // of every other job that is PENDING
  std::vector<int64_t> line;  // of these, the ones that only wait for their turn, in order
};

Schedule schedule(const Snapshot& snapshot);

// Those that are PENDING, the next first. They point into `jobs`.
std::vector<const Job*> line_of(const std::vector<Job>& jobs, int64_t now_ms);

// When the job should start if everything goes as expected: the same schedule played on, with
// running jobs that end as Snapshot::ends_ms says, and all others taking as long as their forecasts
// say. Of a long line the next kLookAhead jobs are played, and
// where that does not reach the job in kMostVisits looks at jobs, the rest of the line is taken to
// move as fast as its beginning. Absent: not before something changes that time alone does not (a
// hold, a quota, a budget).
std::optional<int64_t> expected_start_ms(Snapshot snapshot, int64_t job);
// The same, where schedule(snapshot) is known.
std::optional<int64_t> expected_start_ms(Snapshot snapshot, const Schedule& now, int64_t job);
inline constexpr size_t kLookAhead = 100;
inline constexpr size_t kMostVisits = 3'000;

// How long an attempt of the job is expected to take from its start: its time limit, or one and a
// half times what is left of its forecast, or a day.
int64_t expected_milliseconds(const Job& job);
// The same of a job that nothing goes wrong with: what is left of its forecast, within its time
// limit.
int64_t likely_milliseconds(const Job& job);

inline constexpr int64_t kLeastRunMs = 60'000;       // of a job before it is preempted
inline constexpr int64_t kLongestPauseMs = 900'000;  // between two attempts

}  // namespace tutti::control
