#include "tutti/control/controller/node_report.h"

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr const char* kSuffix = ".json";
constexpr int64_t kMostBytes = 1 << 20;  // of a report

NodeReport read_report(FileSystem& files, const std::string& path) {
  NodeReport report;
  if (files.size_bytes(path) > kMostBytes) {
    fail(ErrorKind::corrupt, "{}: more than {} bytes", path, kMostBytes);
  }
  const Json json = parse_json(read_file(files, path), path);
  report.healthy = json_get<bool>(json, "healthy", path);
  report.busy = json.contains("state") && json_get<std::string>(json, "state", path) == "busy";
  report.wall_seconds = json_get<double>(json, "wall_seconds", path);
  report.kind = json_get<std::string>(json, "kind", path);
  for (const Json& check : json_get<Json>(json, "checks", path)) {
    if (json_get<std::string>(check, "status", path) != "fail") continue;
    report.failures.push_back(
        {json_get<std::string>(check, "name", path), json_get<std::string>(check, "detail", path)});
  }
  return report;
}

}  // namespace

std::vector<NodeReport> read_node_reports(FileSystem& files, const std::string& folder) {
  std::vector<NodeReport> out;
  if (!files.is_directory(folder)) return out;
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.is_directory || !ends_with(entry.name, kSuffix)) continue;
    NodeReport report;
    try {
      report = read_report(files, join_path(folder, entry.name));
    } catch (const Error& error) {
      report.problem = error.what();
    }
    report.node = entry.name.substr(0, entry.name.size() - std::string_view(kSuffix).size());
    out.push_back(std::move(report));
  }
  return out;
}

}  // namespace tutti::control
