// Local nodes whose last health check failed take no jobs.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/control/controller/node_report.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// Takes nodes out of use whose report says that they are unhealthy, with what is wrong as the
// reason, and puts those back that it took out and that are healthy now, or have no report any
// more. An unreadable report changes nothing. Running jobs continue. Returns the number of nodes
// that changed; each leaves a line in the audit log.
int64_t follow_health(Database& database, const std::vector<NodeReport>& reports, int64_t now_ms);

// Whether that took the node out of use: a check that passes puts it back without anybody's help.
bool is_out_by_check(const Node& node);

}  // namespace tutti::control
