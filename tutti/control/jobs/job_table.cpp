#include "tutti/control/jobs/job_table.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/audit.h"

namespace tutti::control {
namespace {

Json limits_json(const Budget& budget) {
  Json json = Json::object();
  for (const BudgetPart& part : budget_parts()) {
    if (budget.*part.limit) json[part.name] = *(budget.*part.limit);
  }
  return json;
}

Budget limits_from(const Json& json) {
  Budget budget;
  for (const BudgetPart& part : budget_parts()) {
    if (json.contains(part.name)) budget.*part.limit = json.at(part.name).get<int64_t>();
  }
  return budget;
}

#define JOB_PROGRESS                                                              \
  "state, reason, detail, priority, held, stop, generation, attempts, requeues, " \
  "submitted_ms, eligible_ms, started_ms, ended_ms, elapsed_ms, told_ms, run_ms, exit_code"
#define JOB_COLUMNS "id, user, request, " JOB_PROGRESS

Job job_without_request(const Query& row, const std::string& origin) {
  Job job;
  job.id = row.integer(0);
  job.user = row.text(1);
  const int64_t state = row.integer(3);
  const int64_t reason = row.integer(4);
  const int64_t stop = row.integer(8);
  if (state < 0 || state >= kJobStates || reason < 0 ||
      reason > static_cast<int>(Reason::out_of_memory) || stop < 0 ||
      stop > static_cast<int>(Stop::budget)) {
    fail(ErrorKind::corrupt, "'{}': job {} has unknown values: state {}, reason {}, stop {}",
         origin, job.id, state, reason, stop);
  }
  job.state = static_cast<JobState>(state);
  job.reason = static_cast<Reason>(reason);
  job.detail = row.text(5);
  job.priority = row.integer(6);
  job.held = row.integer(7) != 0;
  job.stop = static_cast<Stop>(stop);
  job.generation = row.integer(9);
  job.attempts = row.integer(10);
  job.requeues = row.integer(11);
  job.submitted_ms = row.integer(12);
  job.eligible_ms = row.integer(13);
  job.started_ms = row.integer(14);
  job.ended_ms = row.integer(15);
  job.elapsed_ms = row.integer(16);
  job.told_ms = row.integer(17);
  job.run_ms = row.integer(18);
  if (const auto code = row.maybe_integer(19)) job.exit_code = static_cast<int>(*code);
  return job;
}

Job job_from(const Query& row, const std::string& origin) {
  Job job = job_without_request(row, origin);
  job.request = request_from_json(parse_json(row.text(2), origin), origin);
  return job;
}

std::vector<Job> jobs_from(Query query, const std::string& origin) {
  std::vector<Job> jobs;
  while (query.next()) jobs.push_back(job_from(query, origin));
  return jobs;
}

std::optional<int64_t> wide(const std::optional<int>& value) {
  if (!value) return std::nullopt;
  return int64_t{*value};
}

Launch launch_from(const Query& row, const std::string& origin) {
  Launch launch;
  launch.job = row.integer(0);
  launch.generation = row.integer(1);
  launch.nodes = parse_json(row.text(2), origin).get<std::vector<std::string>>();
  launch.rate = rate_from_json(parse_json(row.text(3), origin));
  launch.started_ms = row.integer(4);
  launch.ended_ms = row.maybe_integer(5);
  launch.elapsed_ms = row.integer(6);
  launch.exit_code = row.maybe_integer(7);
  launch.outcome = row.text(8);
  return launch;
}

}  // namespace

Json to_json(const Rate& rate) {
  return {rate.nodes,
          rate.cores,
          rate.gpus,
          rate.micro_usd_per_hour,
          rate.milliwatts,
          rate.micro_kg_per_kwh,
          rate.micro_liters_per_kwh};
}

Rate rate_from_json(const Json& json) {
  const auto at = [&](size_t i) { return json.at(i).get<int64_t>(); };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6)};
}

Json to_json(const JobRequest& request) {
  Json json = {{"name", request.name},
               {"project", request.project},
               {"command", request.command},
               {"folder", request.folder},
               {"run_folder", request.run_folder},
               {"data_class", request.data_class},
               {"data_source", request.data_source},
               {"unlabelled_data", request.unlabelled_data},
               {"guarded_keys", request.guarded_keys},
               {"nodes", request.nodes},
               {"cores", request.cores},
               {"gpus", request.gpus},
               {"priority", request.priority},
               {"deadline_ms", request.deadline_ms},
               {"time_limit_ms", request.time_limit_ms},
               {"max_attempts", request.max_attempts},
               {"preemptible", request.preemptible},
               {"budget", limits_json(request.budget)},
               {"forecast",
                {{"milliseconds", request.forecast.milliseconds},
                 {"micro_usd", request.forecast.micro_usd},
                 {"micro_kwh", request.forecast.micro_kwh},
                 {"basis", request.forecast.basis}}},
               {"client_key", request.client_key}};
  if (request.deployment) json["deployment"] = to_json(*request.deployment);
  return json;
}

JobRequest request_from_json(const Json& json, const std::string& origin) {
  const auto text = [&](const char* key) { return json_get<std::string>(json, key, origin); };
  const auto number = [&](const char* key) { return json_get<int64_t>(json, key, origin); };
  JobRequest request;
  request.name = text("name");
  request.project = text("project");
  request.command = json_get<std::vector<std::string>>(json, "command", origin);
  request.folder = text("folder");
  request.run_folder = text("run_folder");
  request.data_class = text("data_class");
  // Records of earlier versions do not have these.
  request.data_source = json.value("data_source", std::string());
  request.unlabelled_data = json.value("unlabelled_data", std::string());
  request.guarded_keys = json.value("guarded_keys", std::vector<std::string>());
  request.nodes = number("nodes");
  request.cores = number("cores");
  request.gpus = number("gpus");
  request.priority = number("priority");
  request.deadline_ms = number("deadline_ms");
  request.time_limit_ms = number("time_limit_ms");
  request.max_attempts = number("max_attempts");
  request.preemptible = json_get<bool>(json, "preemptible", origin);
  request.budget = limits_from(json_get<Json>(json, "budget", origin));
  const auto forecast = json_get<Json>(json, "forecast", origin);
  request.forecast = {json_get<int64_t>(forecast, "milliseconds", origin),
                      json_get<int64_t>(forecast, "micro_usd", origin),
                      json_get<int64_t>(forecast, "micro_kwh", origin),
                      json_get<std::string>(forecast, "basis", origin)};
  if (json.contains("deployment")) {
    request.deployment = deployment_from_json(json.at("deployment"), origin);
  }
  request.client_key = text("client_key");
  return request;
}

int64_t insert_job(Database& database, const Job& job) {
  std::optional<int64_t> none;
  const JobRequest& request = job.request;
  // NULL, so that jobs without a key do not collide.
  Query insert = database.query(
      "INSERT INTO jobs (user, project, name, client_key, request, state, reason, detail, "
      "priority, held, stop, generation, attempts, requeues, submitted_ms, eligible_ms, "
      "started_ms, ended_ms, elapsed_ms, told_ms, run_ms, exit_code) VALUES (?, ?, ?, "
      "nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      job.user, request.project, request.name, request.client_key, dump_json(to_json(request)),
      static_cast<int>(job.state), static_cast<int>(job.reason), job.detail, job.priority, job.held,
      static_cast<int>(job.stop), job.generation, job.attempts, job.requeues, job.submitted_ms,
      job.eligible_ms, job.started_ms, job.ended_ms, job.elapsed_ms, job.told_ms, job.run_ms, none);
  insert.next();
  return database.last_insert_id();
}

void update_job(Database& database, const Job& job) {
  const int64_t changed = database.run(
      "UPDATE jobs SET state = ?, reason = ?, detail = ?, priority = ?, held = ?, stop = ?, "
      "generation = ?, attempts = ?, requeues = ?, eligible_ms = ?, started_ms = ?, ended_ms = ?, "
      "elapsed_ms = ?, told_ms = ?, run_ms = ?, exit_code = ? WHERE id = ?",
      static_cast<int>(job.state), static_cast<int>(job.reason), job.detail, job.priority, job.held,
      static_cast<int>(job.stop), job.generation, job.attempts, job.requeues, job.eligible_ms,
      job.started_ms, job.ended_ms, job.elapsed_ms, job.told_ms, job.run_ms, wide(job.exit_code),
      job.id);
  TUTTI_CHECK(changed == 1, "job {}: {} rows", job.id, changed);
}

std::optional<Job> find_job(Database& database, int64_t id) {
  Query query = database.query("SELECT " JOB_COLUMNS " FROM jobs WHERE id = ?", id);
  if (!query.next()) return std::nullopt;
  return job_from(query, database.path());
}

std::string run_folder_of(Database& database, int64_t id) {
  Query query = database.query(
      "SELECT ifnull(json_extract(request, '$.run_folder'), '') FROM jobs WHERE id = ?", id);
  return query.next() ? query.text(0) : std::string();
}

std::optional<Job> find_job_by_key(Database& database, const std::string& user,
                                   const std::string& client_key) {
  Query query = database.query("SELECT " JOB_COLUMNS " FROM jobs WHERE user = ? AND client_key = ?",
                               user, client_key);
  if (!query.next()) return std::nullopt;
  return job_from(query, database.path());
}

std::vector<Job> live_jobs(Database& database) {
  return jobs_from(
      database.query("SELECT " JOB_COLUMNS " FROM jobs WHERE " JOB_IS_LIVE " ORDER BY id"),
      database.path());
}

std::vector<Job> jobs_to_schedule(Database& database) {
  std::vector<Job> jobs;
  {
    Query count = database.query("SELECT count(*) FROM jobs WHERE " JOB_IS_LIVE);
    count.next();
    jobs.reserve(static_cast<size_t>(count.integer(0)));
  }
  // All of it is in the index: the requests are not read.
  Query query = database.query(
      "SELECT id, user, '', " JOB_PROGRESS
      ", project, asked_nodes, asked_cores, asked_gpus, deadline_ms, time_limit_ms, preemptible, "
      "forecast_ms, data_class, data_source, unlabelled_data FROM jobs INDEXED BY jobs_scheduled "
      "WHERE " JOB_IS_LIVE " ORDER BY id");
  while (query.next()) {
    Job& job = jobs.emplace_back(job_without_request(query, database.path()));
    JobRequest& request = job.request;
    request.project = query.text(20);
    request.nodes = query.integer(21);
    request.cores = query.integer(22);
    request.gpus = query.integer(23);
    request.deadline_ms = query.integer(24);
    request.time_limit_ms = query.integer(25);
    request.preemptible = query.integer(26) != 0;
    request.forecast.milliseconds = query.integer(27);
    request.data_class = query.text(28);
    request.data_source = query.text(29);
    request.unlabelled_data = query.text(30);
  }
  return jobs;
}

void write_request(Database& database, const Job& job) {
  database.run("UPDATE jobs SET request = ? WHERE id = ?", dump_json(to_json(job.request)), job.id);
}

std::vector<Job> newest_jobs(Database& database, const std::string& project, int64_t most) {
  return jobs_from(database.query("SELECT " JOB_COLUMNS
                                  " FROM jobs WHERE ?1 = '' OR project = ?1 ORDER BY id DESC "
                                  "LIMIT ?2",
                                  project, most),
                   database.path());
}

void move_job(Database& database, Job& job, JobState to, Reason reason, const std::string& detail,
              const std::string& who, int64_t now_ms, const Json& more, const std::string& client) {
  TUTTI_CHECK(is_legal(job.state, to), "job {}: {} -> {}", job.id, state_name(job.state),
              state_name(to));
  const JobState from = job.state;
  job.state = to;
  job.reason = reason;
  job.detail = detail;
  update_job(database, job);
  if (owns_nodes(from) && !owns_nodes(to)) {
    database.run("DELETE FROM claims WHERE job = ?", job.id);
  }
  Json line = {{"reason", reason_name(reason)}, {"generation", job.generation}};
  if (!detail.empty()) line["detail"] = detail;
  line.update(more);
  append_audit(database, {now_ms, who, fmt::format("{} -> {}", state_name(from), state_name(to)),
                          fmt::format("job {}", job.id), true, std::move(line), client});
}

std::vector<Claim> all_claims(Database& database) {
  std::vector<Claim> claims;
  Query query = database.query("SELECT job, generation, node, cores, gpus FROM claims");
  while (query.next()) {
    claims.push_back(
        {query.integer(0), query.integer(1), query.text(2), query.integer(3), query.integer(4)});
  }
  return claims;
}

std::vector<Claim> claims_of(Database& database, int64_t job) {
  std::vector<Claim> claims;
  Query query =
      database.query("SELECT generation, node, cores, gpus FROM claims WHERE job = ?", job);
  while (query.next()) {
    claims.push_back({job, query.integer(0), query.text(1), query.integer(2), query.integer(3)});
  }
  return claims;
}

void add_claim(Database& database, const Claim& claim) {
  database.run("INSERT INTO claims VALUES (?, ?, ?, ?, ?)", claim.job, claim.generation, claim.node,
               claim.cores, claim.gpus);
}

void write_launch(Database& database, const Launch& launch) {
  database.run("INSERT OR REPLACE INTO launches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", launch.job,
               launch.generation, dump_json(Json(launch.nodes)), dump_json(to_json(launch.rate)),
               launch.started_ms, launch.ended_ms, launch.elapsed_ms, launch.exit_code,
               launch.outcome);
}

std::optional<Launch> find_launch(Database& database, int64_t job, int64_t generation) {
  Query query =
      database.query("SELECT * FROM launches WHERE job = ? AND generation = ?", job, generation);
  if (!query.next()) return std::nullopt;
  return launch_from(query, database.path());
}

std::vector<Launch> launches_of(Database& database, int64_t job) {
  std::vector<Launch> launches;
  Query query = database.query("SELECT * FROM launches WHERE job = ? ORDER BY generation", job);
  while (query.next()) launches.push_back(launch_from(query, database.path()));
  return launches;
}

std::vector<Launch> launches_in(Database& database, const std::string& project, int64_t most) {
  std::vector<Launch> launches;
  Query query = database.query(
      "SELECT launches.* FROM jobs JOIN launches ON launches.job = jobs.id WHERE jobs.project = ? "
      "AND launches.started_ms <> 0 ORDER BY jobs.id DESC, launches.generation LIMIT ?",
      project, most);
  while (query.next()) launches.push_back(launch_from(query, database.path()));
  return launches;
}

void reserve_ids(Database& database, const char* table, int64_t last) {
  database.run("DELETE FROM sqlite_sequence WHERE name = ? AND seq < ?", table, last);
  database.run(
      "INSERT INTO sqlite_sequence SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence "
      "WHERE name = ?1)",
      table, last);
}

}  // namespace tutti::control
