// A site of many jobs, projects and nodes, for tests that measure what it costs to look at it.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/control/store/database.h"

namespace tutti::control {

struct ManyJobs {
  int64_t jobs = 10'000;  // of which one runs on each node, a twentieth has ended, the rest waits
  int64_t projects = 1'000;  // named p0, p1, ...; every tenth with a budget
  int64_t nodes = 100;
};

// Fills an empty database. `root` is admin of all projects, `ada` submits to p0 and p1.
void fill_site(Database& database, const ManyJobs& size, int64_t now_ms);

}  // namespace tutti::control
