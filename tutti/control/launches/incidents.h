// Faults of launches, and their records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"
#include "tutti/control/launches/launcher.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// What the lost work cost.
void price(Incident& incident, const Rate& rate);

// Nodes that failed this job within the last hour, as long as enough others are there.
std::vector<std::string> nodes_to_avoid(Database& database, const Job& job, int64_t now_ms);

// What the newest launch reports about faults within it becomes incidents of the job, each once,
// with a line in the audit log. Returns how many are new.
int64_t take_over_faults(Database& database, Launcher& launcher, const Job& job, int64_t now_ms);

// Within a transaction: the job has the nodes that a system outside gave it.
void follow_nodes(Database& database, const Job& job, const std::vector<std::string>& nodes);

}  // namespace tutti::control
