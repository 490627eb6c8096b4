#include "tutti/control/testing/many_jobs.h"

#include <fmt/format.h>

#include <optional>

#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/people/administration.h"
#include "tutti/control/store/schema.h"

namespace tutti::control {
namespace {

Job job_of(int64_t number, const ManyJobs& size, int64_t now_ms) {
  Job job;
  job.user = number % 2 == 0 ? "ada" : "root";
  job.request.name = fmt::format("experiment-{}", number);
  job.request.project = fmt::format("p{}", number % size.projects);
  job.request.command = {"train",
                         fmt::format("/site/control/recipes/{:064x}.yaml", number),
                         "--run",
                         fmt::format("/site/runs/experiment-{}", number),
                         "--nproc",
                         "8",
                         "--ranks-per-node",
                         "8",
                         "--min-nproc",
                         "8"};
  job.request.folder = "/site";
  job.request.run_folder = job.request.command[3];
  job.request.nodes = 1 + number % 3;
  job.request.forecast = {3'600'000 + number % 7 * 600'000, 1'000'000, 500'000,
                          "this-machine, assumed constants; 1000 steps"};
  job.reason = Reason::priority;
  job.submitted_ms = now_ms - 60'000;
  job.eligible_ms = job.submitted_ms;
  return job;
}

// It has a node, and has run for a while.
void run_on(Database& database, Job& job, const std::string& node, int64_t now_ms) {
  job.state = JobState::running;
  job.reason = Reason::none;
  job.generation = 1;
  job.started_ms = now_ms - 30'000;
  job.elapsed_ms = 30'000;
  job.request.nodes = 1;
  job.id = insert_job(database, job);
  add_claim(database, {job.id, 1, node, 8, 0});
}

void end(Database& database, Job& job, int64_t now_ms) {
  job.state = job.request.nodes == 1 ? JobState::completed : JobState::failed;
  job.reason = job.state == JobState::failed ? Reason::attempts_used : Reason::none;
  job.generation = 1;
  job.started_ms = now_ms - 50'000;
  job.ended_ms = now_ms;
  job.run_ms = 50'000;
  job.id = insert_job(database, job);
  if (job.state != JobState::failed) return;
  Incident incident;
  incident.job = job.id;
  incident.generation = 1;
  incident.time_ms = now_ms;
  incident.cause = "ExitCode";
  incident.action = "given up";
  incident.detail = "exit code 1";
  add_incident(database, incident);
}

}  // namespace

void fill_site(Database& database, const ManyJobs& size, int64_t now_ms) {
  prepare_schema(database);
  const Caller root{database, "root", now_ms};
  Site site;
  site.micro_usd_per_node_hour = 3'600'000;
  create_control_plane(root, {"n0", 8, 0, true, false, ""}, site);
  create_user(root, "ada");
  Transaction transaction(database);
  for (int64_t i = 0; i < size.projects; ++i) {
    Project project;
    project.name = fmt::format("p{}", i);
    if (i % 10 == 0) project.budget.micro_usd = 1'000 * kMicro;
    write_project(database, project, now_ms);
  }
  for (const char* project : {"p0", "p1"}) set_member(database, {"ada", project, Role::submitter});
  for (int64_t i = 0; i < size.nodes; ++i) {
    write_node(database, {fmt::format("n{}", i), 8, 0, true, false, ""});
  }
  for (int64_t i = 0; i < size.jobs; ++i) {
    Job job = job_of(i, size, now_ms);
    const bool ends = i < size.jobs / 20;
    const int64_t node = i - size.jobs / 20;
    if (ends) {
      end(database, job, now_ms);
    } else if (node < size.nodes) {
      run_on(database, job, fmt::format("n{}", node), now_ms);
    } else {
      insert_job(database, job);
      continue;
    }
    Launch launch;
    launch.job = job.id;
    launch.generation = 1;
    launch.nodes = {fmt::format("n{}", i % size.nodes)};
    launch.rate = {1, 8, 0, 3'600'000, 400'000, 0, 0};
    launch.started_ms = job.started_ms;
    launch.elapsed_ms = ends ? job.run_ms : job.elapsed_ms;
    if (ends) launch.ended_ms = now_ms;
    write_launch(database, launch);
    charge(database, job, launch, launch.elapsed_ms, std::nullopt, now_ms);
  }
  transaction.commit();
}

}  // namespace tutti::control
