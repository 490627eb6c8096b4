// When the run of a job will have done its steps, by the pace of its latest ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/file.h"

namespace tutti::cli {

// Reads the end of RUN/events.jsonl, whatever its size; wall clock, in seconds. Absent: the run has
// taken no step yet, its steps are not limited, or the file cannot be read.
std::optional<double> run_end_seconds(FileSystem& files, const std::string& run_folder,
                                      double now_wall_seconds);

}  // namespace tutti::cli
