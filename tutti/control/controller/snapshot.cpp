#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::control {

Snapshot read_snapshot(Database& database, int64_t now_ms) {
  Snapshot snapshot;
  snapshot.now_ms = now_ms;
  snapshot.jobs = jobs_to_schedule(database);
  snapshot.claims = all_claims(database);
  snapshot.nodes = all_nodes(database);
  snapshot.policy = read_site(database).policy;
  std::map<std::string, Spend> spent = spent_by_projects(database);
  for (Project& project : all_projects(database)) {
    const std::string name = project.name;
    snapshot.projects[name] = {std::move(project), spent[name]};
  }
  return snapshot;
}

}  // namespace tutti::control
