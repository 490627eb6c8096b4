#include "tutti/cli/control/run_end.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

constexpr size_t kTailBytes = size_t{1} << 20;

// Of the session that the run is in, as far back as the tail of its events goes.
struct Pace {
  int64_t planned_steps = 0;
  std::optional<telemetry::StepDone> first, last;
  double first_seconds = 0, last_seconds = 0;

  void take(const telemetry::Event& event) {
    if (const auto* started = std::get_if<telemetry::RunStarted>(&event.body)) {
      planned_steps = started->steps;
      first.reset();
    } else if (const auto* done = std::get_if<telemetry::StepDone>(&event.body)) {
      last = *done;
      last_seconds = event.wall_seconds;
      if (first) return;
      first = last;
      first_seconds = last_seconds;
    }
  }

  // Evaluations and checkpoints in between count.
  double seconds_per_step() const {
    return last->step > first->step
               ? (last_seconds - first_seconds) / static_cast<double>(last->step - first->step)
               : last->step_seconds;
  }
};

void take_lines(std::string_view text, Pace& pace) {
  for (const std::string_view line : split(text, '\n')) {
    const bool is_relevant = starts_with(line, R"({"event":"run_started")") ||
                             starts_with(line, R"({"event":"step_done")");
    if (!is_relevant) continue;
    if (const auto event = telemetry::event_from_json(Json::parse(line, nullptr, false))) {
      pace.take(*event);
    }
  }
}

// As the run's last session wrote it; 0: not found.
int64_t steps_of_recipe(FileSystem& files, const std::string& run_folder) {
  for (const auto& [key, value] : flatten_yaml(read_file(files, train::recipe_path(run_folder)))) {
    if (key == "train.steps") return std::strtoll(value.c_str(), nullptr, 10);
  }
  return 0;
}

}  // namespace

std::optional<double> run_end_seconds(FileSystem& files, const std::string& run_folder,
                                      double now_wall_seconds) {
  const std::string path = train::events_path(run_folder);
  Pace pace;
  try {
    if (!files.exists(path) || files.size_bytes(path) == 0) return std::nullopt;
    const auto file = files.map(path);
    const std::string_view bytes = file->bytes();
    take_lines(bytes.substr(bytes.size() > kTailBytes ? bytes.size() - kTailBytes : 0), pace);
    // The start of a long session lies before the tail.
    if (pace.planned_steps == 0) pace.planned_steps = steps_of_recipe(files, run_folder);
  } catch (const Error&) {
    return std::nullopt;
  }
  if (!pace.last || !pace.first || pace.planned_steps == 0) return std::nullopt;
  const auto left = static_cast<double>(std::max<int64_t>(0, pace.planned_steps - pace.last->step));
  return std::max(now_wall_seconds, pace.last_seconds + left * pace.seconds_per_step());
}

}  // namespace tutti::cli
