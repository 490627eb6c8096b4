// The class of a job's data right before a launch: files may have changed since it was submitted.
#pragma once

#include <cstdint>

#include "tutti/control/jobs/job.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// Within a transaction: notes on the job what its data state now, with a line in the audit log. A
// class that was stated stays stated. Returns whether anything has changed.
bool relabel(Database& database, Job& job, DataLabel now, int64_t now_ms);

// Whether the rules of the site and of its project allow them (data_rule.h).
bool data_may_be_here(Database& database, const Job& job);

}  // namespace tutti::control
