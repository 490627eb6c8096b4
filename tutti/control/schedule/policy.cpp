#include "tutti/control/schedule/policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/control/schedule/schedule.h"

namespace tutti::control {
namespace {

constexpr int64_t kHealthyRunMs = 600'000;
constexpr int64_t kQuickExitMs = 60'000;
constexpr int64_t kFirstPauseMs = 15'000;

int64_t lead_ms(const JobRequest& request) {
  return std::min<int64_t>(60'000, request.time_limit_ms / 10);
}

std::string exit_text(const End& end) {
  return fmt::format("exit code {}{}{}", *end.exit_code, end.detail.empty() ? "" : ": ",
                     end.detail);
}

// Of a job that stopped on request.
Verdict stopped(const Job& job, const End& end) {
  using enum JobState;
  Verdict verdict;
  verdict.reason = reason_of(job.stop);
  verdict.attempts = job.attempts;
  verdict.detail = job.detail;
  switch (job.stop) {
    case Stop::cancel: verdict.path = {cancelled}; break;
    case Stop::time_limit: verdict.path = {timeout}; break;
    case Stop::deadline: verdict.path = {deadline}; break;
    case Stop::job_budget: verdict.path = {cancelled}; break;
    case Stop::preempt: verdict.path = {preempted, requeued, pending}; break;
    case Stop::requeue:
    case Stop::budget: verdict.path = {requeued, pending}; break;
    case Stop::none: break;
  }
  if (end.exit_code && *end.exit_code != exit_requeue && *end.exit_code != exit_ok) {
    verdict.detail +=
        fmt::format("{}exit code {}", verdict.detail.empty() ? "" : "; ", *end.exit_code);
  }
  return verdict;
}

}  // namespace

int64_t pause_after(int64_t attempts) {
  int64_t pause = kFirstPauseMs;
  for (int64_t i = 1; i < attempts && pause < kLongestPauseMs; ++i) pause *= 2;
  return std::min(pause, kLongestPauseMs);
}

Verdict judge(const Job& job, const End& end) {
  using enum JobState;
  Verdict verdict;
  if (end.exit_code == exit_ok && !job.request.deployment) {
    verdict.path = {completed};
    verdict.attempts = job.attempts;
    return verdict;
  }
  if (job.stop != Stop::none) return stopped(job, end);
  const bool lost = !end.exit_code.has_value();
  if (end.exit_code == exit_do_not_restart || end.exit_code == exit_usage) {
    const bool wrong = end.exit_code == exit_usage;
    verdict.path = {failed};
    verdict.reason = wrong ? Reason::wrong_recipe : Reason::do_not_restart;
    verdict.detail = exit_text(end);
    verdict.attempts = job.attempts + 1;
    verdict.is_incident = true;
    return verdict;
  }
  const bool saved = end.exit_code == exit_requeue;
  if (saved && end.elapsed_ms >= kQuickExitMs) {
    verdict.path = {requeued, pending};
    verdict.reason = Reason::checkpointed;
    return verdict;
  }
  verdict.attempts = end.elapsed_ms >= kHealthyRunMs ? 1 : job.attempts + 1;
  verdict.is_incident = !saved;
  const bool took_memory = end.out_of_memory && !saved;
  const JobState how = took_memory ? out_of_memory : (lost ? node_fail : failed);
  if (took_memory) {
    verdict.reason = Reason::out_of_memory;
    verdict.detail = lost ? end.detail : exit_text(end);
  } else if (lost) {
    verdict.reason = end.started ? Reason::node_lost : Reason::launch_failed;
    verdict.detail = end.detail;
  } else {
    verdict.reason = saved ? Reason::checkpointed : Reason::exit_code;
    verdict.detail = exit_text(end);
  }
  if (verdict.attempts >= job.request.max_attempts) {
    verdict.path = {how};
    verdict.detail +=
        fmt::format("{}{} attempts in a row", verdict.detail.empty() ? "" : "; ", verdict.attempts);
    verdict.reason = Reason::attempts_used;
    return verdict;
  }
  verdict.pause_ms = pause_after(verdict.attempts);
  if (saved) {
    verdict.path = {requeued, pending};
  } else {
    verdict.path = {how, requeued, pending};
  }
  return verdict;
}

Stop stop_due(const Job& job, const Spend& job_spent, const Budget& project_budget,
              const Spend& project_spent, int64_t now_ms) {
  const JobRequest& request = job.request;
  if (request.time_limit_ms > 0 && job.elapsed_ms >= request.time_limit_ms - lead_ms(request)) {
    return Stop::time_limit;
  }
  if (request.deadline_ms > 0 && now_ms >= request.deadline_ms) return Stop::deadline;
  if (limit_reached(request.budget, job_spent)) return Stop::job_budget;
  if (limit_reached(project_budget, project_spent)) return Stop::budget;
  return Stop::none;
}

int64_t grace_ms(const Job& job, const Spend& job_spent, const Budget& project_budget,
                 const Spend& project_spent) {
  const int64_t grace = job.stop == Stop::time_limit ? lead_ms(job.request) : kLongestGraceMs;
  const bool nothing_left =
      limit_reached(job.request.budget, job_spent) || limit_reached(project_budget, project_spent);
  return nothing_left ? std::min(grace, kBudgetGraceMs) : grace;
}

}  // namespace tutti::control
