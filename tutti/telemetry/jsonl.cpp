#include "tutti/telemetry/jsonl.h"

namespace tutti::telemetry {
namespace {

bool ends_inside_a_line(FileSystem& files, const std::string& path) {
  if (!files.exists(path) || files.size_bytes(path) == 0) return false;
  return files.map(path)->bytes().back() != '\n';
}

}  // namespace

JsonLinesSink::JsonLinesSink(FileSystem& files, const std::string& path) {
  const bool torn = ends_inside_a_line(files, path);
  file_ = files.open_append(path);
  if (torn) file_->append("\n", 1);
}

void JsonLinesSink::write(const Event& event) {
  const std::string line = dump_json(to_json(event)) + "\n";
  file_->append(line.data(), line.size());
}

}  // namespace tutti::telemetry
