// What runs report about their own faults (RUN/faults, written by `tutti train`), and the file that
// each incident leaves: FOLDER/incidents/NUMBER.json, with what it cost.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/control/launches/launcher.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

// Those of that launch, in order. Files that cannot be read are left for the next time.
std::vector<Fault> read_faults(FileSystem& files, const std::string& run_folder,
                               const LaunchKey& key);

// Writes the file of every incident later than `after` that has none; returns the last number.
// Repeated after a crash with 0 it completes what is missing.
int64_t write_incident_files(Database& database, FileSystem& files, const std::string& folder,
                             int64_t after);

}  // namespace tutti::control
