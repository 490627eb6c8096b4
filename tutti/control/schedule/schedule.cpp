#include "tutti/control/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct Room {
  int64_t cores = 0;
  int64_t gpus = 0;
};
struct FreeNode {
  Room free;
  Room whole;
};
using FreeNodes = std::map<std::string, FreeNode>;

struct Usage {
  int64_t nodes = 0;
  int64_t cores = 0;
  int64_t jobs = 0;
};

int64_t expected_end_ms(const Job& job, int64_t now_ms) {
  const int64_t start = job.started_ms == 0 ? now_ms : job.started_ms;
  // What should have ended by now may end any moment.
  return std::max(start + expected_milliseconds(job), now_ms + 60'000);
}

int64_t rank_of(const Job& job, int64_t now_ms) {
  return job.priority + std::max<int64_t>(0, now_ms - job.submitted_ms) / kHourMilliseconds;
}

struct InProject {
  const ProjectState* state = nullptr;  // null: the project is gone
  Usage usage;
  // The last request whose data was judged, and how.
  const JobRequest* judged = nullptr;
  std::optional<std::string> rule;
};

class Scheduler {
 public:
  explicit Scheduler(const Snapshot& snapshot) : snapshot_(snapshot) {
    for (const Node& node : snapshot.nodes) {
      const Room whole{node.cores, node.gpus};
      nodes_.push_back(whole);
      least_node_cores_ = std::min(least_node_cores_, node.cores);
      if (node.up && !node.drained) free_[node.name] = {whole, whole};
    }
    for (const Job& job : snapshot.jobs) {
      if (job.state != JobState::pending) by_id_[job.id] = &job;  // claims are of these
    }
    std::set<int64_t> counted;
    for (const Claim& claim : snapshot.claims) {
      take(free_, claim);
      const auto job = by_id_.find(claim.job);
      if (job == by_id_.end()) continue;
      Usage& usage = project_of(job->second->request).usage;
      ++usage.nodes;
      usage.cores += claim.cores;
      if (counted.insert(claim.job).second) ++usage.jobs;
    }
    count_open();
  }

  Schedule run() {
    for (const Job* job : line_of(snapshot_.jobs, snapshot_.now_ms)) {
      Wait wait{job->id, Reason::none, "", result_.line.size()};
      if (const auto why = obstacle(*job)) {
        wait.reason = why->first;
        wait.detail = why->second;
        result_.waits.push_back(std::move(wait));
        continue;
      }
      if (auto claims = place(*job)) {
        start(*job, std::move(*claims));
        continue;
      }
      result_.line.push_back(job->id);
      wait.reason = promised_ms_ ? Reason::priority : Reason::resources;
      if (!promised_ms_) promise(*job);
      result_.waits.push_back(std::move(wait));
    }
    return std::move(result_);
  }

 private:
  static void take(FreeNodes& free, const Claim& claim) {
    const auto node = free.find(claim.node);
    if (node == free.end()) return;
    node->second.free.cores -= claim.cores;
    node->second.free.gpus -= claim.gpus;
  }
  static void give(FreeNodes& free, const Claim& claim) {
    const auto node = free.find(claim.node);
    if (node == free.end()) return;
    node->second.free.cores += claim.cores;
    node->second.free.gpus += claim.gpus;
  }

  InProject& project_of(const JobRequest& request) const {
    const auto [entry, is_new] = in_projects_.try_emplace(request.project);
    if (is_new) {
      const auto found = snapshot_.projects.find(request.project);
      if (found != snapshot_.projects.end()) entry->second.state = &found->second;
    }
    return entry->second;
  }

  // Which rule forbids the data of a job. Most jobs of a project have the same.
  const std::optional<std::string>& rule_of(InProject& project, const JobRequest& request) const {
    const JobRequest* last = project.judged;
    if (last == nullptr || last->data_class != request.data_class ||
        last->data_source != request.data_source ||
        last->unlabelled_data != request.unlabelled_data) {
      project.rule = refusal(label_of(request), project.state->project.regions, snapshot_.policy);
      project.judged = &request;
    }
    return project.rule;
  }

  // What stands in the way of a job whatever is free.
  std::optional<std::pair<Reason, std::string>> obstacle(const Job& job) const {
    const int64_t now = snapshot_.now_ms;
    if (job.held) return std::pair(Reason::held, std::string());
    // A pause that is longer than any pause is a clock that jumped.
    if (job.eligible_ms > now && job.eligible_ms <= now + kLongestPauseMs) {
      return std::pair(Reason::begin_time, fmt::format("{} s", (job.eligible_ms - now) / 1000));
    }
    const JobRequest& request = job.request;
    InProject& found = project_of(request);
    if (found.state == nullptr) return std::pair(Reason::held, std::string());
    const Project& project = found.state->project;
    if (const auto& rule = rule_of(found, request)) {
      return std::pair(Reason::site_rule, *rule);
    }
    if (fitting(request) < request.nodes) return std::pair(Reason::never_fits, std::string());
    if (const auto reached = limit_reached(project.budget, found.state->spent)) {
      return std::pair(Reason::budget, fmt::format("{} of {} {}", format_micro(reached->spent),
                                                   format_micro(reached->limit), reached->what));
    }
    const Usage& usage = found.usage;
    const auto over = [](const std::optional<int64_t>& limit, int64_t in_use, int64_t more) {
      return limit && in_use + more > *limit;
    };
    if (over(project.max_jobs, usage.jobs, 1)) {
      return std::pair(Reason::quota_jobs, fmt::format("{} run", usage.jobs));
    }
    if (over(project.max_nodes, usage.nodes, request.nodes)) {
      return std::pair(Reason::quota_nodes, fmt::format("{} in use", usage.nodes));
    }
    if (over(project.max_cores, usage.cores, least_cores(request))) {
      return std::pair(Reason::quota_cores, fmt::format("{} in use", usage.cores));
    }
    return std::nullopt;
  }

  // Nodes as large as this. Jobs of a site ask for few sizes.
  int64_t fitting(const JobRequest& request) const {
    const auto [entry, is_new] = fitting_.try_emplace(std::pair(request.cores, request.gpus), 0);
    if (is_new) {
      entry->second = std::count_if(nodes_.begin(), nodes_.end(), [&](const Room& node) {
        return node.cores >= request.cores && node.gpus >= request.gpus;
      });
    }
    return entry->second;
  }

  int64_t least_cores(const JobRequest& request) const {
    return request.nodes * (request.cores > 0 ? request.cores : least_node_cores_);
  }

  // The claims of a job on nodes with this much free, leaving out `closed`; fullest nodes first.
  std::optional<std::vector<Claim>> fit(const Job& job, const FreeNodes& free,
                                        const std::set<std::string>& closed = {}) const {
    const JobRequest& request = job.request;
    std::vector<std::pair<int64_t, std::string>> candidates;
    for (const auto& [name, node] : free) {
      const auto& [left, whole] = node;
      const bool room = request.cores == 0
                            ? left.cores == whole.cores && left.gpus == whole.gpus
                            : left.cores >= request.cores && left.gpus >= request.gpus;
      if (room && whole.gpus >= request.gpus && closed.count(name) == 0) {
        candidates.emplace_back(left.cores, name);
      }
    }
    if (static_cast<int64_t>(candidates.size()) < request.nodes) return std::nullopt;
    std::sort(candidates.begin(), candidates.end());
    std::vector<Claim> claims;
    claims.reserve(static_cast<size_t>(request.nodes));
    for (int64_t i = 0; i < request.nodes; ++i) {
      const std::string& name = candidates[static_cast<size_t>(i)].second;
      const Room room =
          request.cores == 0 ? free.at(name).whole : Room{request.cores, request.gpus};
      claims.push_back({job.id, job.generation + 1, name, room.cores, room.gpus});
    }
    return claims;
  }

  std::optional<std::vector<Claim>> place(const Job& job) const {
    if (open_nodes_ < job.request.nodes) return std::nullopt;  // of most jobs in a long line
    const bool harmless =
        !promised_ms_ || snapshot_.now_ms + expected_milliseconds(job) <= *promised_ms_;
    auto claims = fit(job, free_, harmless ? std::set<std::string>{} : promised_nodes_);
    if (!claims) return std::nullopt;
    // The cores that it really gets may be more than the least.
    const InProject& project = project_of(job.request);
    int64_t cores = 0;
    for (const Claim& claim : *claims) cores += claim.cores;
    const auto& most = project.state->project.max_cores;
    if (most && project.usage.cores + cores > *most) return std::nullopt;
    return claims;
  }

  void start(const Job& job, std::vector<Claim> claims) {
    Usage& usage = project_of(job.request).usage;
    ++usage.jobs;
    for (const Claim& claim : claims) {
      take(free_, claim);
      ++usage.nodes;
      usage.cores += claim.cores;
    }
    result_.starts.push_back({job.id, std::move(claims)});
    count_open();
  }

  // Nodes on which anything is free.
  void count_open() {
    open_nodes_ = std::count_if(free_.begin(), free_.end(), [&](const auto& node) {
      const auto& [left, whole] = node.second;
      return left.cores > 0 || left.gpus > 0 || whole.cores == 0;
    });
  }

  // Reserves for the first job in the queue, and looks for jobs to preempt.
  void promise(const Job& job) {
    FreeNodes free = free_;
    for (const Claim& claim : snapshot_.claims) {
      const auto owner = by_id_.find(claim.job);
      if (owner != by_id_.end() && owner->second->state == JobState::completing) give(free, claim);
    }
    if (!fit(job, free)) preempt(job, free);
    std::vector<std::pair<int64_t, int64_t>> ends;  // (when, job)
    for (const Job& each : snapshot_.jobs) {
      if (owns_nodes(each.state))
        ends.emplace_back(expected_end_ms(each, snapshot_.now_ms), each.id);
    }
    std::sort(ends.begin(), ends.end());
    free = free_;
    promised_ms_ = kNoDeadline;
    for (const auto& [when, id] : ends) {
      for (const Claim& claim : snapshot_.claims) {
        if (claim.job == id) give(free, claim);
      }
      if (const auto claims = fit(job, free)) {
        promised_ms_ = when;
        for (const Claim& claim : *claims) promised_nodes_.insert(claim.node);
        return;
      }
    }
  }

  void preempt(const Job& job, FreeNodes free) {
    std::vector<const Job*> victims;
    for (const Job& each : snapshot_.jobs) {
      if (each.state == JobState::running && each.request.preemptible &&
          each.priority < job.priority && each.elapsed_ms >= kLeastRunMs) {
        victims.push_back(&each);
      }
    }
    std::sort(victims.begin(), victims.end(), [](const Job* a, const Job* b) {
      return std::tuple(a->priority, -a->started_ms, -a->id) <
             std::tuple(b->priority, -b->started_ms, -b->id);
    });
    std::vector<const Job*> chosen;
    const auto move = [&](const Job* victim, auto&& how) {
      for (const Claim& claim : snapshot_.claims) {
        if (claim.job == victim->id) how(free, claim);
      }
    };
    for (const Job* victim : victims) {
      move(victim, give);
      chosen.push_back(victim);
      if (fit(job, free)) break;
    }
    if (!fit(job, free)) return;
    // Spare those that turned out not to be in the way.
    for (auto victim = chosen.begin(); victim != chosen.end();) {
      move(*victim, take);
      if (fit(job, free)) {
        victim = chosen.erase(victim);
      } else {
        move(*victim, give);
        ++victim;
      }
    }
    for (const Job* victim : chosen) result_.preemptions.push_back({victim->id, job.id});
  }

  const Snapshot& snapshot_;
  std::vector<Room> nodes_;  // whole, also those that take no jobs now
  int64_t least_node_cores_ = std::numeric_limits<int64_t>::max();
  FreeNodes free_;
  int64_t open_nodes_ = 0;
  std::map<int64_t, const Job*> by_id_;
  mutable std::unordered_map<std::string, InProject> in_projects_;
  mutable std::map<std::pair<int64_t, int64_t>, int64_t> fitting_;  // by cores and GPUs
  std::optional<int64_t> promised_ms_;
  std::set<std::string> promised_nodes_;
  Schedule result_;
};

}  // namespace

std::vector<const Job*> line_of(const std::vector<Job>& all, int64_t now_ms) {
  using Key = std::tuple<int64_t, int64_t, int64_t>;
  std::vector<std::pair<Key, const Job*>> line;
  line.reserve(all.size());
  for (const Job& job : all) {
    if (job.state != JobState::pending) continue;
    const int64_t deadline = job.request.deadline_ms;
    line.emplace_back(Key(-rank_of(job, now_ms), deadline == 0 ? kNoDeadline : deadline, job.id),
                      &job);
  }
  // They come in the order of submission, which mostly is this one.
  if (!std::is_sorted(line.begin(), line.end())) std::sort(line.begin(), line.end());
  std::vector<const Job*> jobs;
  jobs.reserve(line.size());
  for (const auto& [key, job] : line) jobs.push_back(job);
  return jobs;
}

int64_t expected_milliseconds(const Job& job) {
  if (job.request.time_limit_ms > 0) return job.request.time_limit_ms;
  const int64_t forecast = job.request.forecast.milliseconds;
  if (forecast <= 0) return kDayMs;
  return std::max<int64_t>(60'000, (forecast - std::min(forecast, job.run_ms)) * 3 / 2);
}

int64_t likely_milliseconds(const Job& job) {
  const int64_t forecast = job.request.forecast.milliseconds;
  if (forecast <= 0) return expected_milliseconds(job);
  const int64_t left = std::max<int64_t>(60'000, forecast - std::min(forecast, job.run_ms));
  const int64_t limit = job.request.time_limit_ms;
  return limit > 0 ? std::min(left, limit) : left;
}

Schedule schedule(const Snapshot& snapshot) { return Scheduler(snapshot).run(); }

}  // namespace tutti::control
