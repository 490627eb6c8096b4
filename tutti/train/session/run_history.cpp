#include "tutti/train/session/run_history.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "tutti/base/text.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {

RunHistory read_history(FileSystem& files, const std::string& run_folder) {
  RunHistory history;
  const std::string path = events_path(run_folder);
  if (!files.exists(path)) return history;
  const auto file = files.map(path);
  const std::string_view bytes = file->bytes();
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = bytes.substr(at, end - at);
    at = end + 1;
    const bool is_relevant = starts_with(line, R"({"event":"run_started")") ||
                             starts_with(line, R"({"event":"checkpoint_saved")");
    if (!is_relevant) continue;
    const auto event = telemetry::event_from_json(Json::parse(line, nullptr, false));
    if (!event) continue;
    if (const auto* started = std::get_if<telemetry::RunStarted>(&event->body)) {
      history.has_started = true;
      if (started->first_step == 0) history.saved_steps.clear();
      const auto id = started->details.find("run_id");
      if (id != started->details.end() && id->is_string()) {
        history.ids.insert(id->get<std::string>());
      }
      const auto recipe = started->details.find("recipe");
      const bool has_recipe = recipe != started->details.end() && recipe->is_string();
      history.recipe = has_recipe ? recipe->get<std::string>() : "";
    } else if (const auto* saved = std::get_if<telemetry::CheckpointSaved>(&event->body)) {
      history.saved_steps.insert(saved->step);
    }
  }
  return history;
}

}  // namespace tutti::train
