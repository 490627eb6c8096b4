#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "tutti/api/tutti.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/train/session/resume.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/session.h"
#include "tutti_version.h"

namespace tutti {
namespace {

// Runs `action` and turns what the outside world gets wrong into the exception of the interface.
template <typename Action>
auto translated(const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    throw TrainingError(error_kind_name(error.kind()), error.what());
  }
}

// share/tutti of the installation that this library belongs to: PREFIX/lib[/ARCH]/libtutti.so.
std::string presets_folder(FileSystem& files) {
  std::string presets = "recipes/models";
  if (const char* home = std::getenv("TUTTI_HOME"); home != nullptr && *home != '\0') {
    return join_path(home, presets);
  }
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&version), &info) == 0) return presets;
  std::string folder = parent_path(files.resolve(info.dli_fname));
  for (int above = 0; above < 3; ++above) {
    folder = parent_path(folder);
    std::string found = join_path(join_path(folder, "share/tutti"), presets);
    if (files.is_directory(found)) return found;
  }
  return presets;
}

std::optional<checkpoint::CheckpointInfo> newest(FileSystem& files, const std::string& home) {
  std::optional<checkpoint::CheckpointInfo> out;
  for (const auto& saved : checkpoint::list_checkpoints(files, train::checkpoints_path(home))) {
    if (saved.valid) out = saved;
  }
  return out;
}

class Observer final : public telemetry::Sink {
 public:
  explicit Observer(const std::function<void(const TrainingStep&)>& observe) : observe_(observe) {}

  void write(const telemetry::Event& event) override {
    const auto* done = std::get_if<telemetry::StepDone>(&event.body);
    if (done == nullptr) return;
    observe_({done->step, done->tokens, done->loss, done->gradient_norm, done->learning_rate,
              done->step_seconds, done->skipped});
  }

 private:
  const std::function<void(const TrainingStep&)>& observe_;
};

}  // namespace

TrainingError::TrainingError(const std::string& kind, const std::string& message)
    : std::runtime_error(message), kind_(kind) {}
TrainingError::~TrainingError() = default;
const std::string& TrainingError::kind() const { return kind_; }

struct Training::State {
  spec::Recipe recipe;
  std::string run_folder;
  int64_t steps = 0;  // done
};

Training::Training(const std::string& recipe, const std::vector<std::string>& overrides,
                   const std::string& run_folder)
    : state_(std::make_unique<State>()) {
  translated([&] {
    FileSystem& files = object::file_system();
    train::check_run_folder(files, run_folder);
    state_->run_folder = run_folder;
    state_->recipe =
        spec::parse_recipe(read_file(files, recipe), recipe, overrides, presets_folder(files));
    spec::check_executable(state_->recipe);
    if (state_->recipe.run.name.empty()) state_->recipe.run.name = base_name(run_folder);
    const std::string home = train::home_of(state_->recipe, run_folder);
    const auto saved = newest(files, home);
    if (!saved) return;
    const auto recorded = train::saved_recipe(files, home);
    train::check_resumable(
        recorded ? spec::parse_recipe(recorded->yaml, recorded->path, {}, presets_folder(files))
                 : train::load_recipe(files, run_folder),
        state_->recipe, run_folder);
    state_->steps = saved->step;
  });
}

Training::~Training() = default;
Training::Training(Training&&) noexcept = default;
Training& Training::operator=(Training&&) noexcept = default;

TrainingResult Training::train(int64_t steps,
                               const std::function<void(const TrainingStep&)>& observe) {
  return translated([&] {
    if (steps < 1) fail(ErrorKind::usage, "train: {} steps; write a number from 1", steps);
    FileSystem& files = object::file_system();
    train::SessionOptions options;
    options.run_folder = state_->run_folder;
    options.measure_peak = false;
    options.stop_after_step = state_->steps + steps;
    train::Summary summary;
    {
      telemetry::Telemetry telemetry;
      files.create_directories(state_->run_folder);
      telemetry.add(std::make_unique<telemetry::JsonLinesSink>(
          files, train::events_path(state_->run_folder)));
      if (observe) telemetry.add(std::make_unique<Observer>(observe));
      summary = train::run_session(state_->recipe, options, files, telemetry);
      telemetry.flush();
    }
    state_->steps = summary.steps;
    TrainingResult result;
    result.steps = summary.steps;
    result.loss = summary.final_loss;
    result.tokens_per_second = summary.tokens_per_second;
    result.validation_loss =
        summary.validation_loss.value_or(std::numeric_limits<double>::quiet_NaN());
    result.finished = summary.outcome == train::Outcome::target_reached ||
                      summary.outcome == train::Outcome::steps_done;
    if (const auto saved = newest(files, train::home_of(state_->recipe, state_->run_folder)))
      result.checkpoint = saved->path;
    return result;
  });
}

const char* version() { return TUTTI_VERSION; }

}  // namespace tutti
