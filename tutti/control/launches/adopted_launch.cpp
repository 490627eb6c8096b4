#include "tutti/control/launches/adopted_launch.h"

#include <algorithm>

#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::control {

void adopt_launch(Database& database, Job& job, const AdoptedLaunch& adopted, int64_t now_ms) {
  const int64_t elapsed_ms = std::max(job.elapsed_ms, adopted.elapsed_ms);
  auto launch = find_launch(database, job.id, job.generation);
  ++job.generation;
  if (launch) {
    charge(database, job, *launch, elapsed_ms, adopted.measured_micro_kwh, now_ms);
    launch->elapsed_ms = elapsed_ms;
    launch->exit_code = adopted.exit_code;
    launch->ended_ms = now_ms;
    launch->outcome = "Adopted";
    write_launch(database, *launch);
    Launch next;
    next.job = job.id;
    next.generation = job.generation;
    next.nodes = launch->nodes;
    next.rate = launch->rate;
    next.started_ms = now_ms;
    write_launch(database, next);
  }
  database.run("UPDATE claims SET generation = ? WHERE job = ?", job.generation, job.id);
  job.run_ms += elapsed_ms;
  job.elapsed_ms = 0;
  job.told_ms = -1;
  update_job(database, job);
}

}  // namespace tutti::control
