#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "tutti/control/schedule/schedule.h"

namespace tutti::control {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Whether time alone cannot let it start.
bool is_stuck(Reason reason) {
  return reason == Reason::held || reason == Reason::never_fits || reason == Reason::site_rule ||
         reason == Reason::budget;
}

bool is_limited(Reason reason) {
  return reason == Reason::quota_nodes || reason == Reason::quota_cores ||
         reason == Reason::quota_jobs;
}

// The schedule played on until a job starts.
class Playing {
 public:
  Playing(Snapshot snapshot, const Schedule& first, int64_t job)
      : snapshot_(std::move(snapshot)), job_(job) {
    begin_ms_ = snapshot_.now_ms;
    std::set<int64_t> stuck;
    std::set<int64_t> limited;  // by the quotas of their projects
    for (const Wait& wait : first.waits) {
      if (is_stuck(wait.reason)) stuck.insert(wait.job);
      if (is_limited(wait.reason)) limited.insert(wait.job);
    }
    is_stuck_ = stuck.count(job) > 0;
    // Jobs behind it that are not among the next hardly affect it.
    std::vector<Job> played;
    all_ = std::move(snapshot_.jobs);
    const std::vector<const Job*> line = line_of(all_, begin_ms_);
    const auto found =
        std::find_if(line.begin(), line.end(), [&](const Job* each) { return each->id == job; });
    const std::string project = found == line.end() ? "" : (*found)->request.project;
    size_t waiting = 0;
    size_t aside = 0;
    for (const Job* each : line) {
      if (stuck.count(each->id) > 0) continue;
      // Those of another project whose quota is used up let others pass.
      if (limited.count(each->id) > 0 && each->request.project != project) {
        if (aside++ < kLookAhead) played.push_back(*each);
        continue;
      }
      if (waiting++ < kLookAhead) {
        played.push_back(*each);
      } else if (!reached_) {
        later_.push_back(each);
      }
      reached_ = reached_ || each->id == job;
    }
    for (const Job& each : all_) {
      if (owns_nodes(each.state)) played.push_back(each);
    }
    snapshot_.jobs = std::move(played);
    std::reverse(later_.begin(), later_.end());  // the next is at the back
  }

  std::optional<int64_t> run() {
    if (is_stuck_ || !reached_) return std::nullopt;
    // Every round starts or ends a job, or lets a pause end.
    const size_t rounds = 3 * (snapshot_.jobs.size() + later_.size()) + 3;
    size_t visits = 0;
    for (size_t round = 0; round < rounds; ++round) {
      visits += snapshot_.jobs.size();
      if (visits > kMostVisits) return at_this_pace();
      if (starts_it()) return snapshot_.now_ms;
      const auto next = next_ms();
      if (!next) return std::nullopt;
      end_until(*next);
    }
    return std::nullopt;
  }

 private:
  // One round of the scheduler.
  bool starts_it() {
    const Schedule now = schedule(snapshot_);
    for (const Start& start : now.starts) {
      if (start.job == job_) return true;
      const auto each = std::find_if(snapshot_.jobs.begin(), snapshot_.jobs.end(),
                                     [&](const Job& one) { return one.id == start.job; });
      each->state = JobState::running;
      each->started_ms = snapshot_.now_ms;
      snapshot_.claims.insert(snapshot_.claims.end(), start.claims.begin(), start.claims.end());
      ++started_;
      if (later_.empty()) continue;
      snapshot_.jobs.push_back(*later_.back());
      later_.pop_back();
    }
    return false;
  }

  int64_t end_ms(const Job& job) const {
    if (const auto recorded = snapshot_.ends_ms.find(job.id); recorded != snapshot_.ends_ms.end()) {
      return std::max(recorded->second, begin_ms_ + 1'000);
    }
    const int64_t start = job.started_ms == 0 ? snapshot_.now_ms : job.started_ms;
    return std::max(start + likely_milliseconds(job), snapshot_.now_ms + 60'000);
  }

  // When something changes by itself.
  std::optional<int64_t> next_ms() const {
    int64_t next = kNever;
    for (const Job& each : snapshot_.jobs) {
      if (owns_nodes(each.state)) {
        next = std::min(next, end_ms(each));
      } else if (each.eligible_ms > snapshot_.now_ms) {
        next = std::min(next, each.eligible_ms);
      }
    }
    if (next == kNever) return std::nullopt;
    return next;
  }

  void end_until(int64_t time_ms) {
    std::set<int64_t> ended;
    std::erase_if(snapshot_.jobs, [&](const Job& each) {
      const bool ends = owns_nodes(each.state) && end_ms(each) <= time_ms;
      if (ends) ended.insert(each.id);
      return ends;
    });
    std::erase_if(snapshot_.claims, [&](const Claim& claim) { return ended.count(claim.job) > 0; });
    snapshot_.now_ms = time_ms;
  }

  // The rest of the line moves as fast as the part that was played.
  std::optional<int64_t> at_this_pace() const {
    if (started_ == 0) return std::nullopt;
    const auto waiting = std::count_if(snapshot_.jobs.begin(), snapshot_.jobs.end(),
                                       [](const Job& job) { return !owns_nodes(job.state); });
    const double left = static_cast<double>(waiting) + static_cast<double>(later_.size());
    const double pace = static_cast<double>(snapshot_.now_ms - begin_ms_) /
                        static_cast<double>(started_);  // milliseconds per job
    return snapshot_.now_ms + static_cast<int64_t>(left * pace);
  }

  Snapshot snapshot_;
  const int64_t job_;
  int64_t begin_ms_ = 0;
  bool is_stuck_ = false;
  bool reached_ = false;           // it waits
  std::vector<Job> all_;           // as they are now; not copied, for there may be many
  std::vector<const Job*> later_;  // of these, not yet among those that are played
  size_t started_ = 0;
};

}  // namespace

std::optional<int64_t> expected_start_ms(Snapshot snapshot, const Schedule& now, int64_t job) {
  return Playing(std::move(snapshot), now, job).run();
}

std::optional<int64_t> expected_start_ms(Snapshot snapshot, int64_t job) {
  const Schedule now = schedule(snapshot);
  return expected_start_ms(std::move(snapshot), now, job);
}

}  // namespace tutti::control
