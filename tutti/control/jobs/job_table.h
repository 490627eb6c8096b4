// Jobs, what they own, their launches and incidents in the database. Functions that write are
// called within a transaction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// SQL condition of the jobs that are not final (is_final). The partial indexes of store/schema.cpp
// have the same expression: SQLite uses them for queries with it.
#define JOB_IS_LIVE "(state < 5 OR state = 13)"

int64_t insert_job(Database& database, const Job& job);  // returns its id
void update_job(Database& database, const Job& job);     // everything but the request
std::optional<Job> find_job(Database& database, int64_t id);
std::string run_folder_of(Database& database, int64_t id);  // "" where the job is gone or has none
std::optional<Job> find_job_by_key(Database& database, const std::string& user,
                                   const std::string& client_key);
// The jobs that are not final, in the order of submission.
std::vector<Job> live_jobs(Database& database);
// The same with as much of their requests as the scheduler looks at (control/schedule/schedule.h).
std::vector<Job> jobs_to_schedule(Database& database);
void write_request(Database& database, const Job& job);  // of a job that is there
// The newest `most`, newest first; of one project unless it is empty.
std::vector<Job> newest_jobs(Database& database, const std::string& project, int64_t most);

// Moves a job to another state with its line in the audit log, and takes its claims away when that
// state owns no nodes. The caller has set the other fields of `job`; all are written. A move that
// the table of states does not have aborts. `more` goes into the line as well, and the address that
// asked for it over the network.
void move_job(Database& database, Job& job, JobState to, Reason reason, const std::string& detail,
              const std::string& who, int64_t now_ms, const Json& more = Json::object(),
              const std::string& client = {});

std::vector<Claim> all_claims(Database& database);
std::vector<Claim> claims_of(Database& database, int64_t job);
void add_claim(Database& database, const Claim& claim);

void write_launch(Database& database, const Launch& launch);  // inserts or replaces
std::optional<Launch> find_launch(Database& database, int64_t job, int64_t generation);
std::vector<Launch> launches_of(Database& database, int64_t job);

// Of a project's jobs, the newest jobs' first; at most so many.
std::vector<Launch> launches_in(Database& database, const std::string& project, int64_t most);

void add_incident(Database& database, const Incident& incident);
std::optional<Incident> find_incident(Database& database, int64_t id);
std::vector<Incident> incidents_of(Database& database, int64_t job);
std::vector<Incident> incidents_after(Database& database, int64_t id);  // of all jobs
// Numbers up to `last` are never given to what comes into `table`: "jobs", "incidents".
void reserve_ids(Database& database, const char* table, int64_t last);
bool has_incident(Database& database, int64_t job, const std::string& name);
Json to_json(const Incident& incident);

Json to_json(const Rate& rate);
Rate rate_from_json(const Json& json);
Json to_json(const JobRequest& request);
JobRequest request_from_json(const Json& json, const std::string& origin);

}  // namespace tutti::control
