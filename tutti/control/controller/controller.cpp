#include "tutti/control/controller/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/node_health.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/jobs/relabel.h"
#include "tutti/control/launches/adopted_launch.h"
#include "tutti/control/launches/incidents.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/schedule/limits.h"
#include "tutti/control/schedule/policy.h"

namespace tutti::control {
namespace {

std::string first_node(const std::vector<Claim>& claims) {
  return claims.empty() ? std::string() : claims.front().node;
}

Reason cause_of(const End& end) {
  if (end.out_of_memory) return Reason::out_of_memory;
  if (end.exit_code) return Reason::exit_code;
  return end.started ? Reason::node_lost : Reason::launch_failed;
}

// Whether a job would start once checks that failed pass again: then the controller has to continue
// reading their reports.
bool waits_for_checks(Snapshot snapshot) {
  bool any = false;
  for (Node& node : snapshot.nodes) {
    if (!is_out_by_check(node)) continue;
    node.up = true;
    any = true;
  }
  return any && !schedule(snapshot).starts.empty();
}

}  // namespace

LaunchKey key_of(const Job& job) { return {job.id, job.submitted_ms, job.generation}; }

void Controller::move(Job& job, JobState to, Reason reason, const std::string& detail,
                      int64_t now_ms, const Json& more) {
  move_job(database_, job, to, reason, detail, kController, now_ms, more);
  ++result_.changes;
}

TickResult Controller::tick(int64_t now_ms) {
  result_ = {};
  for (const Job& job : jobs_to_schedule(database_)) {
    if (owns_nodes(job.state)) {
      look_after(job.id, now_ms);
    } else if (job.state == JobState::pending && is_past_deadline(job, now_ms)) {
      expire(job.id, now_ms);
    }
  }
  const Snapshot snapshot = read_snapshot(database_, now_ms);
  const Schedule plan = schedule(snapshot);
  for (const Start& start : plan.starts) begin(start, now_ms);
  for (const Preemption& preemption : plan.preemptions) preempt(preemption, now_ms);
  for (const Wait& wait : plan.waits) {
    if (wait.reason == Reason::begin_time) ++result_.startable;
    const auto job = std::lower_bound(snapshot.jobs.begin(), snapshot.jobs.end(), wait.job,
                                      [](const Job& each, int64_t id) { return each.id < id; });
    if (job->reason == wait.reason) continue;
    database_.run("UPDATE jobs SET reason = ? WHERE id = ? AND state = ?",
                  static_cast<int>(wait.reason), wait.job, static_cast<int>(JobState::pending));
  }
  if (plan.starts.empty() && result_.startable == 0 && waits_for_checks(snapshot)) {
    ++result_.startable;
  }
  Query states = database_.query("SELECT state FROM jobs WHERE " JOB_IS_LIVE);
  while (states.next()) {
    const auto state = static_cast<JobState>(states.integer(0));
    ++(owns_nodes(state) ? result_.active : result_.waiting);
  }
  return result_;
}

bool is_idle(Database& database, int64_t now_ms) {
  const Snapshot snapshot = read_snapshot(database, now_ms);
  const Schedule plan = schedule(snapshot);
  return plan.starts.empty() &&
         std::none_of(plan.waits.begin(), plan.waits.end(),
                      [](const Wait& wait) { return wait.reason == Reason::begin_time; }) &&
         std::none_of(snapshot.jobs.begin(), snapshot.jobs.end(),
                      [](const Job& job) { return owns_nodes(job.state); }) &&
         !waits_for_checks(snapshot);
}

LaunchOrder Controller::order_of(const Job& job, int64_t now_ms) {
  LaunchOrder order;
  order.key = key_of(job);
  order.command = job.request.command;
  order.folder = job.request.folder;
  order.claims = claims_of(database_, job.id);
  order.grace_ms = kBudgetGraceMs;
  if (job.request.deployment) order.health = job.request.deployment->health;
  order.avoid = nodes_to_avoid(database_, job, now_ms);
  const auto launch = find_launch(database_, job.id, job.generation);
  order.stop_after_ms = stop_after_ms(database_, job, launch ? launch->rate : Rate{}, now_ms);
  return order;
}

void Controller::look_after(int64_t id, int64_t now_ms) {
  auto job = find_job(database_, id);
  if (!job || !owns_nodes(job->state)) return;
  const LaunchKey key = key_of(*job);
  LaunchStatus status;
  if (!attempt(*job, [&] { status = launcher_.status(key); })) return;
  const bool waits = status.phase == LaunchPhase::unknown || status.phase == LaunchPhase::starting;
  if (waits && job->state == JobState::configuring && is_past_deadline(*job, now_ms)) {
    give_up_waiting(*job, now_ms);
  }
  switch (status.phase) {
    case LaunchPhase::unknown: {
      if (job->state == JobState::configuring) {
        launch(*job, now_ms);
        return;
      }
      // Asked to stop before it began. From now on it cannot begin; perhaps it just did.
      LaunchStatus never;
      const bool answered = attempt(*job, [&] {
        launcher_.kill(key);
        never = launcher_.status(key);
      });
      if (!answered || never.phase != LaunchPhase::unknown) return;
      never.detail = "it had not started";
      finish(*job, never, now_ms);
      return;
    }
    case LaunchPhase::superseded: pass_over(key, status, now_ms); return;
    case LaunchPhase::starting:
      if (job->state == JobState::completing) attempt(*job, [&] { launcher_.stop(key); });
      if (job->state == JobState::configuring) record_detail(*job, status.detail);
      return;
    case LaunchPhase::running:
      if (job->state == JobState::running || job->state == JobState::suspended) {
        record_detail(*job, "");  // what was wrong has passed
      }
      result_.changes += take_over_faults(database_, launcher_, *job, now_ms);
      observe_running(*job, status, now_ms);
      return;
    case LaunchPhase::ended:
    case LaunchPhase::lost:
      result_.changes += take_over_faults(database_, launcher_, *job, now_ms);
      finish(*job, status, now_ms);
      return;
    case LaunchPhase::failed: finish(*job, status, now_ms); return;
  }
}

// It has its nodes, or waits for them in the queue of a system outside, and cannot end in time.
void Controller::give_up_waiting(Job& seen, int64_t now_ms) {
  Transaction transaction(database_);
  Job job = *find_job(database_, seen.id);
  if (job.state == JobState::configuring && job.generation == seen.generation) {
    job.stop = Stop::deadline;
    job.told_ms = -1;
    move(job, JobState::completing, Reason::deadline_passed, "", now_ms);
    transaction.commit();
  }
  seen = job;
}

// What is wrong with the folder of one job is not in the way of the others. Of one that was asked
// to stop the detail says by whom, and stays to its end.
bool Controller::attempt(const Job& job, const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    if (job.state != JobState::completing) record_detail(job, error.what());
    return false;
  }
}

// Where that fails, the next round finds the launch unknown and starts it again.
void Controller::launch(const Job& job, int64_t now_ms) {
  const LaunchOrder order = order_of(job, now_ms);
  attempt(job, [&] { launcher_.start(order); });
}

// What people see beside its state.
void Controller::record_detail(const Job& job, const std::string& detail) {
  if (job.detail == detail) return;
  database_.run("UPDATE jobs SET detail = ? WHERE id = ? AND state = ?", detail, job.id,
                static_cast<int>(job.state));
}

// The records are older than that launch: books what it took, and continues with the next one.
void Controller::pass_over(const LaunchKey& key, const LaunchStatus& status, int64_t now_ms) {
  Transaction transaction(database_);
  auto job = find_job(database_, key.job);
  if (!job || !owns_nodes(job->state) || job->generation != key.generation) return;
  const int64_t ran_before_ms = job->run_ms;
  AdoptedLaunch adopted{status.elapsed_ms, status.measured_micro_kwh, std::nullopt};
  if (status.exit_code) adopted.exit_code = *status.exit_code;
  adopt_launch(database_, *job, adopted, now_ms);
  // With all that it takes to do it again (control/audit/replay.h).
  Json detail_json = {{"generation", job->generation}, {"elapsed_ms", job->run_ms - ran_before_ms}};
  if (adopted.exit_code) detail_json["exit_code"] = *adopted.exit_code;
  if (adopted.measured_micro_kwh) detail_json["measured_micro_kwh"] = *adopted.measured_micro_kwh;
  append_audit(database_, {now_ms, kController, "adopt", fmt::format("job {}", job->id), true,
                           std::move(detail_json)});
  transaction.commit();
}

void Controller::observe_running(Job& seen, const LaunchStatus& status, int64_t now_ms) {
  const LaunchKey key = key_of(seen);
  const bool to_book = status.elapsed_ms - seen.elapsed_ms >= kChargeIntervalMs;
  const bool halts = status.suspended && seen.state == JobState::running;
  const bool goes_on = !status.suspended && seen.state == JobState::suspended;
  const bool to_move = seen.state == JobState::configuring || halts || goes_on;
  const bool may_be_due = seen.state == JobState::suspended && is_past_deadline(seen, now_ms);
  if (to_book || to_move || may_be_due ||
      (seen.state == JobState::completing && seen.told_ms < 0)) {
    Transaction transaction(database_);
    Job job = *find_job(database_, seen.id);
    if (!owns_nodes(job.state)) return;
    const auto launch = find_launch(database_, job.id, job.generation);
    if (job.state == JobState::configuring) {
      follow_nodes(database_, job, status.nodes);
      move(job, JobState::running, Reason::none, "", now_ms);
    }
    if (status.suspended && job.state == JobState::running) {
      move(job, JobState::suspended, Reason::none, "", now_ms);
    } else if (!status.suspended && job.state == JobState::suspended) {
      move(job, JobState::running, Reason::none, "", now_ms);
    }
    if (to_book && launch) {
      job.elapsed_ms = status.elapsed_ms;
      charge(database_, job, *launch, status.elapsed_ms, std::nullopt, now_ms);
    }
    if (job.state == JobState::running || job.state == JobState::suspended) {
      const Stop due = stop_due(database_, job, now_ms);
      if (due != Stop::none) {
        job.stop = due;
        move(job, JobState::completing, reason_of(due), "", now_ms);
      }
    }
    if (job.state == JobState::completing && job.told_ms < 0) job.told_ms = status.elapsed_ms;
    update_job(database_, job);
    transaction.commit();
    seen = job;
  }
  if (seen.state != JobState::completing) return;
  attempt(seen, [&] { launcher_.stop(key); });
  if (status.elapsed_ms - seen.told_ms >= grace_ms(database_, seen)) {
    attempt(seen, [&] { launcher_.kill(key); });
  }
}

void Controller::finish(Job& seen, const LaunchStatus& status, int64_t now_ms) {
  Transaction transaction(database_);
  Job job = *find_job(database_, seen.id);
  if (!owns_nodes(job.state) || job.generation != seen.generation) return;
  const bool started = status.phase == LaunchPhase::ended || status.phase == LaunchPhase::lost;
  if ((job.state == JobState::configuring && started) || job.state == JobState::suspended) {
    move(job, JobState::running, Reason::none, "", now_ms);
  }
  if (started) follow_nodes(database_, job, status.nodes);
  if (job.stop == Stop::none) job.stop = status.stopped_by;
  End end;
  end.exit_code = status.exit_code;
  end.started = started;
  end.out_of_memory = started && status.out_of_memory;
  end.detail = status.detail;
  end.elapsed_ms = std::max(job.elapsed_ms, status.elapsed_ms);
  const std::string node = first_node(claims_of(database_, job.id));
  job.elapsed_ms = end.elapsed_ms;
  auto launch = find_launch(database_, job.id, job.generation);
  if (launch) charge(database_, job, *launch, end.elapsed_ms, status.measured_micro_kwh, now_ms);
  if (job.stop == Stop::none && end.exit_code == exit_requeue) {
    // It may have been stopped by the limit that its launch carries, while no controller was there.
    job.stop = stop_due(database_, job, now_ms);
  }
  const bool to_go_on = job.stop == Stop::preempt || job.stop == Stop::requeue;
  if (to_go_on && limit_reached(job.request.budget, spent_by_job(database_, job.id))) {
    job.stop = Stop::job_budget;  // another launch could only overdraw it
  }
  const Verdict verdict = judge(job, end);
  if (launch) {
    launch->ended_ms = now_ms;
    launch->elapsed_ms = end.elapsed_ms;
    if (end.exit_code) launch->exit_code = *end.exit_code;
    launch->outcome = reason_name(verdict.reason);
    write_launch(database_, *launch);
  }
  Json more = {{"elapsed_ms", end.elapsed_ms}, {"attempts", verdict.attempts}};
  if (end.exit_code) more["exit_code"] = *end.exit_code;
  if (status.measured_micro_kwh) more["measured_micro_kwh"] = *status.measured_micro_kwh;
  const bool again = verdict.path.back() == JobState::pending;
  if (verdict.is_incident) {
    Incident incident;
    incident.job = job.id;
    incident.generation = job.generation;
    incident.time_ms = now_ms;
    incident.node = node;
    incident.cause = reason_name(cause_of(end));
    incident.action = again ? fmt::format("again in {} s", verdict.pause_ms / 1000) : "given up";
    incident.detail = verdict.detail;
    incident.lost_ms = end.elapsed_ms;
    if (launch) price(incident, launch->rate);
    add_incident(database_, incident);
  }
  job.run_ms += end.elapsed_ms;
  job.exit_code = end.exit_code;
  job.attempts = verdict.attempts;
  job.ended_ms = now_ms;
  for (const JobState state : verdict.path) {
    if (state == JobState::requeued) ++job.requeues;
    if (state == JobState::pending) {
      job.stop = Stop::none;
      job.told_ms = -1;
      job.elapsed_ms = 0;
      job.started_ms = 0;
      job.eligible_ms = now_ms + verdict.pause_ms;
    }
    // The first of them leaves the nodes, and reports what the launch took.
    move(job, state, verdict.reason, verdict.detail, now_ms,
         state == verdict.path.front() ? more : Json::object());
  }
  transaction.commit();
  if (ended_ && is_final(job.state)) ended_(job);
}

void Controller::begin(const Start& start, int64_t now_ms) {
  Job job;
  std::optional<DataLabel> label;
  if (label_) {
    // Files are read outside the transaction: they may lie on a slow disk.
    const auto found = find_job(database_, start.job);
    if (found) label = label_(*found);
  }
  {
    Transaction transaction(database_);
    const auto found = find_job(database_, start.job);
    // A user may have cancelled or held it since the snapshot.
    if (!found || found->state != JobState::pending || found->held) return;
    job = *found;
    if (job.generation + 1 != start.claims.front().generation) return;
    if (label) relabel(database_, job, *label, now_ms);
    if (!data_may_be_here(database_, job)) {
      transaction.commit();
      ++result_.changes;  // the next round says which rule it waits for
      return;
    }
    ++job.generation;
    job.started_ms = now_ms;
    job.elapsed_ms = 0;
    job.told_ms = -1;
    job.stop = Stop::none;
    job.ended_ms = 0;
    job.exit_code.reset();
    Launch launch;
    launch.job = job.id;
    launch.generation = job.generation;
    launch.started_ms = now_ms;
    for (const Claim& claim : start.claims) {
      add_claim(database_, claim);
      launch.nodes.push_back(claim.node);
    }
    launch.rate = rate_of(read_site(database_), all_nodes(database_), start.claims);
    write_launch(database_, launch);
    Json claims = Json::array();
    for (const Claim& claim : start.claims) claims.push_back({claim.node, claim.cores, claim.gpus});
    move(job, JobState::configuring, Reason::none, "", now_ms,
         {{"claims", claims}, {"rate", to_json(launch.rate)}});
    transaction.commit();
  }
  launch(job, now_ms);
}

void Controller::preempt(const Preemption& preemption, int64_t now_ms) {
  Transaction transaction(database_);
  auto job = find_job(database_, preemption.job);
  if (!job || job->state != JobState::running) return;
  job->stop = Stop::preempt;
  job->told_ms = -1;
  move(*job, JobState::completing, Reason::preempted_by,
       fmt::format("by job {}", preemption.for_job), now_ms);
  transaction.commit();
}

void Controller::expire(int64_t id, int64_t now_ms) {
  Transaction transaction(database_);
  auto job = find_job(database_, id);
  if (!job || job->state != JobState::pending) return;
  job->ended_ms = now_ms;
  move(*job, JobState::deadline, Reason::deadline_passed, "", now_ms);
  transaction.commit();
  if (ended_) ended_(*job);
}

}  // namespace tutti::control
