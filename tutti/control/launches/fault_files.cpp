#include "tutti/control/launches/fault_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/control/jobs/job_table.h"

namespace tutti::control {

std::vector<Fault> read_faults(FileSystem& files, const std::string& run_folder,
                               const LaunchKey& key) {
  std::vector<Fault> faults;
  const std::string folder = run_folder.empty() ? "" : join_path(run_folder, "faults");
  if (folder.empty() || !files.is_directory(folder)) return faults;
  const std::string prefix = fmt::format("fault-{}-", launch_name(key));
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (!starts_with(entry.name, prefix) || !ends_with(entry.name, ".json")) continue;
    const std::string path = join_path(folder, entry.name);
    try {
      const Json json = parse_json(read_file(files, path), path);
      Fault fault;
      fault.name = entry.name;
      fault.time_ms = std::llround(json_get<double>(json, "wall_seconds", path) * 1000);
      fault.node = json_get<std::string>(json, "node", path);
      fault.rank = json_get<int64_t>(json, "rank", path);
      fault.cause = json_get<std::string>(json, "cause", path);
      fault.action = json_get<std::string>(json, "action", path);
      fault.lost_steps = json_get<int64_t>(json, "lost_steps", path);
      fault.lost_ms = std::llround(json_get<double>(json, "lost_seconds", path) * 1000);
      faults.push_back(fault);
    } catch (const Error&) {
      continue;  // one that is being written elsewhere
    }
  }
  std::sort(faults.begin(), faults.end(),
            [](const Fault& a, const Fault& b) { return a.name < b.name; });
  return faults;
}

int64_t write_incident_files(Database& database, FileSystem& files, const std::string& folder,
                             int64_t after) {
  for (const Incident& incident : incidents_after(database, after)) {
    after = incident.id;
    const std::string path = join_path(folder, fmt::format("{:06}.json", incident.id));
    if (files.exists(path)) continue;
    files.create_directories(folder);
    const auto job = find_job(database, incident.job);
    Json json = to_json(incident);
    if (job) {
      json["user"] = job->user;
      json["project"] = job->request.project;
      json["run"] = job->request.run_folder;
    }
    write_file_atomic(files, path, dump_json(json) + "\n");
  }
  return after;
}

}  // namespace tutti::control
