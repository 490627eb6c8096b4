// Progress of a run, from its events: for launchers of ranks on other machines.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/file.h"

namespace tutti::launch {

// The step after the last that was done since that time (wall clock); 0: none was.
int64_t step_since(FileSystem& files, const std::string& run_folder, double wall_seconds);

}  // namespace tutti::launch
