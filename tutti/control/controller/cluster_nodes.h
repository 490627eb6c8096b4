// The nodes of an external scheduler, such as Slurm, in the database.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// A line of the audit log: the node came up or went down, and why. Within a transaction.
void append_node_state(Database& database, const Node& node, int64_t now_ms);

// Brings the records to what that system says, with a line in the audit log for each node that
// came, went or came back. Whether a node is drained here is ours to say. Returns the number of
// changes.
int64_t follow_cluster(Database& database, const std::vector<Node>& nodes, int64_t now_ms);

}  // namespace tutti::control
