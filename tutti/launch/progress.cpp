#include "tutti/launch/progress.h"

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::launch {

int64_t step_since(FileSystem& files, const std::string& run_folder, double wall_seconds) {
  const std::string path = train::events_path(run_folder);
  if (!files.exists(path)) return 0;
  const std::string text = read_file(files, path);
  const size_t name = text.rfind("\"step_done\"");
  if (name == std::string::npos) return 0;
  const size_t begin = text.rfind('\n', name) + 1;  // npos + 1 is 0
  const size_t end = text.find('\n', name);
  if (end == std::string::npos) return 0;
  try {
    const Json event = parse_json(text.substr(begin, end - begin), path);
    if (event.value("wall_seconds", 0.0) < wall_seconds) return 0;
    return event.value("step", int64_t{-1}) + 1;
  } catch (const Error&) {
    return 0;  // a line that a dead rank did not finish
  }
}

}  // namespace tutti::launch
