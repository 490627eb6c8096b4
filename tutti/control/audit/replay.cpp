#include "tutti/control/audit/replay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/launches/adopted_launch.h"
#include "tutti/control/ledger/account_policy.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::control {
namespace {

struct Line {
  int64_t time_ms = 0;
  std::string who;
  std::string what;
  std::string on;
  Json detail;
};

// "job 7": 7 where `text` begins with "job ".
std::string name_after(const std::string& text, const char* kind) {
  const std::string start = std::string(kind) + " ";
  return starts_with(text, start) ? text.substr(start.size()) : std::string();
}

std::optional<JobState> state_of(std::string_view name) {
  for (int i = 0; i < kJobStates; ++i) {
    if (name == state_name(static_cast<JobState>(i))) return static_cast<JobState>(i);
  }
  return std::nullopt;
}

Stop stop_of(const Job& job) {
  if (starts_with(job.detail, "requeue ")) return Stop::requeue;
  for (const Stop stop : {Stop::cancel, Stop::preempt, Stop::time_limit, Stop::deadline,
                          Stop::job_budget, Stop::budget}) {
    if (reason_of(stop) == job.reason) return stop;
  }
  return Stop::none;
}

bool submitted(Database& database, const Line& line, int64_t id) {
  if (!line.detail.contains("request")) return false;
  Job job;
  job.user = line.who;
  job.request = request_from_json(line.detail.at("request"), line.on);
  job.priority = job.request.priority;
  job.reason = Reason::priority;
  job.submitted_ms = line.time_ms;
  job.eligible_ms = line.time_ms;
  const int64_t given = insert_job(database, job);
  database.run("UPDATE jobs SET id = ? WHERE id = ?", id, given);
  return true;
}

// A launch begins: its nodes are the job's.
void configure(Database& database, const Line& line, Job& job) {
  job.started_ms = line.time_ms;
  job.elapsed_ms = 0;
  job.told_ms = -1;
  job.stop = Stop::none;
  job.ended_ms = 0;
  job.exit_code.reset();
  if (!line.detail.contains("claims") || !line.detail.contains("rate")) return;
  Launch launch;
  launch.job = job.id;
  launch.generation = job.generation;
  launch.started_ms = line.time_ms;
  launch.rate = rate_from_json(line.detail.at("rate"));
  const std::vector<Node> known = all_nodes(database);
  for (const Json& each : line.detail.at("claims")) {
    const Claim claim{job.id, job.generation, each.at(0).get<std::string>(),
                      each.at(1).get<int64_t>(), each.at(2).get<int64_t>()};
    launch.nodes.push_back(claim.node);
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&](const Node& node) { return node.name == claim.node; });
    if (!is_known) write_node(database, {claim.node, claim.cores, claim.gpus, true, false, ""});
    add_claim(database, claim);
  }
  write_launch(database, launch);
}

// A launch has ended, and what it took is booked.
void leave(Database& database, const Line& line, Job& job) {
  database.run("DELETE FROM claims WHERE job = ?", job.id);
  const int64_t elapsed_ms = std::max(job.elapsed_ms, line.detail.value("elapsed_ms", int64_t{0}));
  job.attempts = line.detail.value("attempts", job.attempts);
  if (line.detail.contains("exit_code")) job.exit_code = line.detail.at("exit_code").get<int>();
  job.run_ms += elapsed_ms;
  job.elapsed_ms = 0;
  auto launch = find_launch(database, job.id, job.generation);
  if (!launch) return;
  std::optional<int64_t> measured;
  if (line.detail.contains("measured_micro_kwh")) {
    measured = line.detail.at("measured_micro_kwh").get<int64_t>();
  }
  charge(database, job, *launch, elapsed_ms, measured, line.time_ms);
  launch->elapsed_ms = elapsed_ms;
  launch->ended_ms = line.time_ms;
  launch->outcome = reason_name(job.reason);
  if (job.exit_code) launch->exit_code = *job.exit_code;
  write_launch(database, *launch);
}

bool moved(Database& database, const Line& line, Job& job, JobState from, JobState to) {
  job.state = to;
  job.reason = parse_reason(line.detail.value("reason", std::string(reason_name(Reason::none))));
  job.detail = line.detail.value("detail", std::string());
  job.generation = line.detail.value("generation", job.generation);
  if (to == JobState::configuring) configure(database, line, job);
  if (to == JobState::completing) job.stop = stop_of(job);
  if (owns_nodes(from) && !owns_nodes(to)) leave(database, line, job);
  if (is_final(to)) job.ended_ms = line.time_ms;
  if (to == JobState::requeued) {
    if (is_final(from) && job.reason == Reason::user_request) {  // by hand: it starts over
      job.attempts = 0;
      job.exit_code.reset();
    } else {
      ++job.requeues;
    }
  }
  if (to == JobState::pending) {
    job.stop = Stop::none;
    job.told_ms = -1;
    job.started_ms = 0;
    job.ended_ms = 0;
    job.eligible_ms = line.time_ms;
  }
  update_job(database, job);
  return true;
}

// A launch that the records had never heard of.
bool adopted(Database& database, const Line& line, Job& job) {
  if (!owns_nodes(job.state) || line.detail.value("generation", int64_t{0}) != job.generation + 1) {
    return false;
  }
  AdoptedLaunch launch{line.detail.value("elapsed_ms", int64_t{0}), std::nullopt, std::nullopt};
  if (line.detail.contains("measured_micro_kwh")) {
    launch.measured_micro_kwh = line.detail.at("measured_micro_kwh").get<int64_t>();
  }
  if (line.detail.contains("exit_code")) {
    launch.exit_code = line.detail.at("exit_code").get<int64_t>();
  }
  adopt_launch(database, job, launch, line.time_ms);
  return true;
}

bool of_job(Database& database, const Line& line, int64_t id) {
  auto job = find_job(database, id);
  if (line.what == "submit" || line.what == kDeploy)
    return job.has_value() || submitted(database, line, id);
  if (!job) return false;
  if (line.what == "hold" || line.what == "release") {
    job->held = line.what == "hold";
    job->reason = job->held ? Reason::held : Reason::priority;
    update_job(database, *job);
    return true;
  }
  if (line.what == "cancel") {  // of one that was on its way out
    job->stop = Stop::cancel;
    job->reason = Reason::user_request;
    update_job(database, *job);
    return true;
  }
  if (line.what == "adopt") return adopted(database, line, *job);
  if (line.what == kRelabel) {
    set_label(job->request, {line.detail.value("data_class", std::string()),
                             line.detail.value("source", std::string()),
                             line.detail.value("unlabelled", std::string())});
    write_request(database, *job);
    return true;
  }
  const size_t arrow = line.what.find(" -> ");
  if (arrow == std::string::npos) return false;
  const auto from = state_of(std::string_view(line.what).substr(0, arrow));
  const auto to = state_of(std::string_view(line.what).substr(arrow + 4));
  return from && to && moved(database, line, *job, *from, *to);
}

Budget budget_from(const Json& json) {
  Budget budget;
  for (const BudgetPart& part : budget_parts()) {
    if (!json.contains(part.name)) continue;
    budget.*part.limit = std::llround(json.at(part.name).get<double>() * kMicro);
  }
  return budget;
}

bool of_project(Database& database, const Line& line, const std::string& name) {
  const std::string user = line.detail.value("user", std::string());
  if (line.what == "grant") {
    const auto users = all_users(database);
    if (std::find(users.begin(), users.end(), user) == users.end()) return false;
    set_member(database, {user, name, parse_role(line.detail.value("role", std::string()))});
    return true;
  }
  if (line.what == "revoke") {
    remove_member(database, user, name);
    return true;
  }
  if (line.what != "define project") return false;
  Project project;
  project.name = name;
  project.regions = line.detail.value("regions", std::vector<std::string>());
  project.budget = budget_from(line.detail.value("budget", Json::object()));
  const auto limit = [&](const char* key) -> std::optional<int64_t> {
    if (!line.detail.contains(key)) return std::nullopt;
    return line.detail.at(key).get<int64_t>();
  };
  project.max_nodes = limit("max_nodes");
  project.max_cores = limit("max_cores");
  project.max_jobs = limit("max_jobs");
  project.approved_only = line.detail.value("approved_only", false);
  write_project(database, project, line.time_ms);
  return true;
}

bool of_site(Database& database, const Line& line) {
  if (const std::string user = name_after(line.on, "user"); !user.empty()) {
    if (line.what == "disable user" || line.what == "enable user") {
      set_disabled(database, user, line.what == "disable user");
      return true;
    }
    if (line.what == kDemandToken || line.what == kTrustAccount) {
      write_demand(database, user, line.what == kDemandToken);
      return true;
    }
    if (line.what != "create user") return false;
    if (!has_user(database, user)) add_user(database, user, line.time_ms);
    return true;
  }
  if (const std::string id = name_after(line.on, "token"); !id.empty()) {
    revoke_token(database, id);
    return true;
  }
  if (const std::string name = name_after(line.on, "node"); !name.empty()) {
    if (line.what != "define node") return true;  // up or down: what is seen next counts
    write_node(database,
               {name, line.detail.value("cores", int64_t{0}), line.detail.value("gpus", int64_t{0}),
                true, line.detail.value("drained", false), ""});
    return true;
  }
  if (line.what == "define site" && line.detail.contains("site")) {
    write_site(database, site_from_json(line.detail.at("site"), line.on));
    return true;
  }
  return false;
}

// What changes nothing that the records know of: an approval is in the audit log alone, API keys
// are in a file.
bool is_no_change(const Line& line) {
  return line.what == "restore" || line.what == kAdoptAuditLog || line.on == "page" ||
         !name_after(line.on, "checkpoint").empty() || !name_after(line.on, "deployment").empty();
}

}  // namespace

bool replay_line(Database& database, const Json& json) {
  if (!json.value("allowed", true)) return true;
  const Line line{json.value("time_ms", int64_t{0}), json.value("who", std::string()),
                  json.value("what", std::string()), json.value("on", std::string()),
                  json.value("detail", Json::object())};
  if (is_no_change(line)) return true;
  if (const std::string text = name_after(line.on, "job"); !text.empty()) {
    int64_t id = 0;
    std::from_chars(text.data(), text.data() + text.size(), id);
    return id > 0 && of_job(database, line, id);
  }
  if (const std::string name = name_after(line.on, "project"); !name.empty()) {
    return of_project(database, line, name);
  }
  return of_site(database, line);
}

}  // namespace tutti::control
