// The control plane as metrics that Prometheus scrapes, in the text format 0.0.4:
//
//   tutti_jobs{state}                         gauge: PENDING, RUNNING, ... of all projects
//   tutti_oldest_wait_seconds                 gauge: of the job that has waited longest
//   tutti_controller_up                       gauge
//   tutti_nodes{state}                        gauge: up, drained, down
//   tutti_node_cores{node}, tutti_node_cores_in_use{node}      gauges
//   tutti_node_healthy{node}, tutti_node_checked_seconds{node} gauges, of `tutti check`; the latter
//                                             since 1970
//   tutti_project_cost_usd_total{project}     counters, like tutti_project_energy_joules_total,
//                                             tutti_project_node_seconds_total,
//                                             tutti_project_co2e_kg_total
//   tutti_project_budget_usd{project}         gauges, also tutti_project_budget_joules,
//                                             tutti_project_budget_node_seconds; absent: no limit
//   tutti_incidents_total{cause}              counter
//   tutti_audit_lines_total                   counter
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/control/store/database.h"
#include "tutti/control/store/folder.h"

namespace tutti::control {

std::string controller_metrics(Database& database, FileSystem& files, const ControlFolder& folder,
                               bool controller_runs, int64_t now_ms);

}  // namespace tutti::control
