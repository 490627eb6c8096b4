#include "tutti/control/people/visible.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::control {
namespace {

// ?1 is the caller, or empty for one with a role in all projects; ?2 and ?3 are a project and a
// user, or empty for any. Every role may see (roles.cpp).
#define SEEN_BY_CALLER                                                                      \
  "(?1 = '' OR project IN (SELECT members.project FROM members JOIN users ON users.name = " \
  "members.user WHERE members.user = ?1 AND users.disabled = 0))"
#define MATCHES SEEN_BY_CALLER " AND (?2 = '' OR project = ?2) AND (?3 = '' OR user = ?3)"

std::string seer(const Caller& caller) {
  return may(caller, Action::view, kAllProjects) ? std::string() : caller.user;
}

struct Sql {
  const char* ids;
  const char* count;
};

Sql sql_of(JobFilter::Which which) {
  switch (which) {
    case JobFilter::Which::live:
      return {"SELECT id FROM jobs WHERE " JOB_IS_LIVE " AND " MATCHES
              " ORDER BY id LIMIT ?4 OFFSET ?5",
              "SELECT count(*) FROM jobs WHERE " JOB_IS_LIVE " AND " MATCHES};
    case JobFilter::Which::active:
      return {
          "SELECT DISTINCT claims.job FROM claims JOIN jobs ON jobs.id = claims.job WHERE " MATCHES
          " ORDER BY claims.job DESC LIMIT ?4 OFFSET ?5",
          "SELECT count(DISTINCT claims.job) FROM claims JOIN jobs ON jobs.id = claims.job "
          "WHERE " MATCHES};
    case JobFilter::Which::ended:
      return {"SELECT id FROM jobs WHERE NOT " JOB_IS_LIVE " AND " MATCHES
              " ORDER BY id DESC LIMIT ?4 OFFSET ?5",
              "SELECT count(*) FROM jobs WHERE NOT " JOB_IS_LIVE " AND " MATCHES};
    case JobFilter::Which::all: break;
  }
  return {"SELECT id FROM jobs WHERE " MATCHES " ORDER BY id DESC LIMIT ?4 OFFSET ?5",
          "SELECT count(*) FROM jobs WHERE " MATCHES};
}

}  // namespace

std::vector<std::string> projects_where(const Caller& caller, Action action) {
  std::map<std::string, Role> roles;
  {
    Query query = caller.database.query(
        "SELECT project, role FROM members JOIN users ON users.name = members.user WHERE user = ? "
        "AND disabled = 0",
        caller.user);
    while (query.next()) roles[query.text(0)] = parse_role(query.text(1));
  }
  const auto allowed = [&](const std::string& project) {
    const auto role = roles.find(project);
    return role != roles.end() && allows(role->second, action);
  };
  const bool everywhere = allowed(kAllProjects);
  std::vector<std::string> names;
  Query query = caller.database.query("SELECT name FROM projects ORDER BY name");
  while (query.next()) {
    std::string name = query.text(0);
    if (everywhere || allowed(name)) names.push_back(std::move(name));
  }
  return names;
}

std::vector<Job> visible_jobs(const Caller& caller, const JobFilter& filter) {
  // Which they are is found in an index; only these are read.
  std::vector<int64_t> ids;
  {
    Query query = caller.database.query(sql_of(filter.which).ids, seer(caller), filter.project,
                                        filter.user, filter.most, filter.skip);
    while (query.next()) ids.push_back(query.integer(0));
  }
  std::vector<Job> jobs;
  jobs.reserve(ids.size());
  for (const int64_t id : ids) {
    if (auto job = find_job(caller.database, id)) jobs.push_back(std::move(*job));
  }
  return jobs;
}

int64_t count_visible(const Caller& caller, const JobFilter& filter) {
  Query query =
      caller.database.query(sql_of(filter.which).count, seer(caller), filter.project, filter.user);
  query.next();
  return query.integer(0);
}

std::vector<int64_t> visible_ids(const Caller& caller, const std::vector<int64_t>& ids) {
  const std::string who = seer(caller);
  if (who.empty()) return ids;
  const std::vector<std::string> seen = projects_where(caller, Action::view);
  const std::set<std::string> projects(seen.begin(), seen.end());
  std::set<int64_t> visible;
  Query query = caller.database.query("SELECT id, project FROM jobs WHERE " JOB_IS_LIVE);
  while (query.next()) {
    if (projects.count(query.text(1)) > 0) visible.insert(query.integer(0));
  }
  std::vector<int64_t> out;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(out),
               [&](int64_t id) { return visible.count(id) > 0; });
  return out;
}

JobTally tally_visible(const Caller& caller) {
  const std::string who = seer(caller);
  JobTally tally;
  {
    Query query = caller.database.query("SELECT state, count(*) FROM jobs WHERE " JOB_IS_LIVE
                                        " AND " SEEN_BY_CALLER " GROUP BY state",
                                        who);
    while (query.next()) {
      const auto state = static_cast<JobState>(query.integer(0));
      (owns_nodes(state) ? tally.active : tally.waiting) += query.integer(1);
    }
  }
  Query query = caller.database.query(
      "SELECT count(*) FROM claims JOIN jobs ON jobs.id = claims.job WHERE " SEEN_BY_CALLER, who);
  query.next();
  tally.nodes = query.integer(0);
  return tally;
}

std::vector<VisibleIncident> visible_incidents(const Caller& caller, int64_t most) {
  std::vector<std::pair<int64_t, std::string>> found;
  {
    Query query = caller.database.query(
        "SELECT incidents.id, jobs.name FROM incidents JOIN jobs ON jobs.id = incidents.job "
        "WHERE " SEEN_BY_CALLER " ORDER BY incidents.id DESC LIMIT ?2",
        seer(caller), most);
    while (query.next()) found.emplace_back(query.integer(0), query.text(1));
  }
  std::vector<VisibleIncident> out;
  out.reserve(found.size());
  for (auto& [id, name] : found) {
    if (auto incident = find_incident(caller.database, id)) {
      out.push_back({std::move(*incident), std::move(name)});
    }
  }
  return out;
}

Spend visible_spend(const Caller& caller) {
  const std::map<std::string, Spend> all = spent_by_projects(caller.database);
  Spend spent;
  for (const std::string& project : projects_where(caller, Action::view_ledger)) {
    const auto found = all.find(project);
    if (found != all.end()) spent += found->second;
  }
  return spent;
}

std::optional<std::string> project_of_run(Database& database, const std::string& run_folder) {
  Query query = database.query(
      "SELECT project FROM jobs WHERE json_extract(request, '$.run_folder') = ? ORDER BY id LIMIT "
      "1",
      run_folder);
  if (!query.next()) return std::nullopt;
  return query.text(0);
}

std::optional<int64_t> live_job_of_run(Database& database, const std::string& run_folder) {
  Query query = database.query(
      "SELECT id FROM jobs WHERE json_extract(request, '$.run_folder') = ? AND " JOB_IS_LIVE
      " ORDER BY id LIMIT 1",
      run_folder);
  if (!query.next()) return std::nullopt;
  return query.integer(0);
}

std::optional<Job> visible_job_of_run(const Caller& caller, const std::string& run_folder) {
  Query query = caller.database.query(
      "SELECT id FROM jobs WHERE " SEEN_BY_CALLER
      " AND json_extract(request, '$.run_folder') = ?2 ORDER BY id DESC LIMIT 1",
      seer(caller), run_folder);
  if (!query.next()) return std::nullopt;
  return find_job(caller.database, query.integer(0));
}

}  // namespace tutti::control
