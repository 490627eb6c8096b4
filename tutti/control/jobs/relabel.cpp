#include "tutti/control/jobs/relabel.h"

#include <fmt/format.h>

#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"

namespace tutti::control {

bool relabel(Database& database, Job& job, DataLabel now, int64_t now_ms) {
  const DataLabel before = label_of(job.request);
  if (parse_data_class(now.data_class) < parse_data_class(before.data_class)) {
    now.data_class = before.data_class;
    now.source = before.source;
  }
  if (now == before) return false;
  set_label(job.request, now);
  write_request(database, job);
  append_audit(
      database,
      {now_ms,
       kController,
       kRelabel,
       fmt::format("job {}", job.id),
       true,
       {{"data_class", now.data_class}, {"source", now.source}, {"unlabelled", now.unlabelled}}});
  return true;
}

bool data_may_be_here(Database& database, const Job& job) {
  const auto project = find_project(database, job.request.project);
  return project && !refusal(label_of(job.request), project->regions, read_site(database).policy);
}

}  // namespace tutti::control
