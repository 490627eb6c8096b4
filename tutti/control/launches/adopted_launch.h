// A launch that is newer than the records, which know only its number.
#pragma once

#include <cstdint>
#include <optional>

#include "tutti/control/jobs/job.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// What is left of it.
struct AdoptedLaunch {
  int64_t elapsed_ms = 0;
  std::optional<int64_t> measured_micro_kwh;
  std::optional<int64_t> exit_code;
};

// Within a transaction: books what the newest launch of `job`, which has nodes, took, and continues
// with the next one on the same nodes.
void adopt_launch(Database& database, Job& job, const AdoptedLaunch& adopted, int64_t now_ms);

}  // namespace tutti::control
