#include "tutti/telemetry/event_tail.h"

#include "tutti/telemetry/event_reader.h"

namespace tutti::telemetry {

std::optional<StepDone> last_step(FileSystem& files, const std::string& path) {
  constexpr size_t kTailBytes = 64 << 10;
  if (!files.exists(path)) return std::nullopt;
  const auto file = files.map(path);
  std::string_view bytes = file->bytes();
  if (bytes.size() > kTailBytes) bytes.remove_prefix(bytes.size() - kTailBytes);
  // What follows the last line end is still being written.
  for (size_t end = bytes.rfind('\n'); end != std::string_view::npos && end > 0;) {
    const size_t before = bytes.rfind('\n', end - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const Json line = Json::parse(bytes.substr(begin, end - begin), nullptr, false);
    if (line.is_object()) {
      const std::optional<Event> event = event_from_json(line);
      if (event && std::holds_alternative<StepDone>(event->body)) {
        return std::get<StepDone>(event->body);
      }
    }
    end = before;
  }
  return std::nullopt;
}

}  // namespace tutti::telemetry
