// What the limits of a job say, with what the records know of its spending: policy.h on the
// database.
#pragma once

#include <cstdint>

#include "tutti/control/jobs/job.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

bool is_past_deadline(const Job& job, int64_t now_ms);

// As policy.h.
Stop stop_due(Database& database, const Job& job, int64_t now_ms);
int64_t grace_ms(Database& database, const Job& job);

// How long a launch that begins now may run without a controller: its time limit, and no longer
// than its deadline, and the budgets for it alone at `rate`, allow. 0: as long as it likes.
int64_t stop_after_ms(Database& database, const Job& job, const Rate& rate, int64_t now_ms);

}  // namespace tutti::control
