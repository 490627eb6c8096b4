#include "tutti/train/session/run_record.h"

#include <bit>
#include <cmath>
#include <variant>

#include "tutti/base/error.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {
namespace {

std::optional<checkpoint::Base> read_weights(const Json& details) {
  const auto found = details.find("initial_weights");
  if (found == details.end() || !found->is_object()) return std::nullopt;
  return checkpoint::Base{found->value("path", std::string()),
                          found->value("manifest_xxh3", std::string())};
}

class Collector {
 public:
  explicit Collector(RunRecord& record) : record_(record) {}

  void take(const telemetry::RunStarted& event) {
    RunPartRecord part;
    part.first_step = event.first_step;
    const auto recipe = event.details.find("recipe");
    if (recipe != event.details.end() && recipe->is_string()) {
      part.recipe_yaml = recipe->get<std::string>();
    }
    part.initial_weights = read_weights(event.details);
    if (event.teacher) {
      part.teacher = checkpoint::Base{event.teacher->path, event.teacher->manifest_hash};
    }
    record_.parts.push_back(std::move(part));
    record_.last_step = event.first_step;
  }
  void take(const telemetry::MachineDescribed& event) { part().machine = event; }
  void take(const telemetry::CorpusDescribed& event) { part().corpora.push_back(event); }
  void take(const telemetry::StepDone& event) {
    const StepNumbers now{event.loss, event.gradient_norm, event.learning_rate, event.skipped};
    const auto [found, fresh] = record_.steps.try_emplace(event.step, now);
    if (!fresh) {
      ++record_.repeated_steps;
      const bool same = same_bits(found->second.loss, now.loss) &&
                        same_bits(found->second.gradient_norm, now.gradient_norm);
      if (!same && !record_.unequal_repeat) record_.unequal_repeat = event.step;
      found->second = now;
    }
    record_.last_step = event.step;
  }
  void take(const telemetry::EvaluationDone& event) {
    record_.evaluations[event.step] = event.loss;
  }
  template <typename Other>
  void take(const Other& /*event*/) {}

 private:
  RunPartRecord& part() {
    if (record_.parts.empty()) record_.parts.emplace_back();
    return record_.parts.back();
  }
  RunRecord& record_;
};

}  // namespace

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

RunRecord read_run_record(FileSystem& files, const std::string& run_folder) {
  const std::string path = events_path(run_folder);
  if (!files.exists(path)) {
    fail(ErrorKind::not_found,
         "'{}' holds no recorded run: no '{}'; give the folder that 'tutti train' "
         "printed",
         run_folder, path);
  }
  RunRecord record;
  Collector collector(record);
  telemetry::read_events(files, path, [&](const telemetry::Event& event) {
    std::visit([&](const auto& body) { collector.take(body); }, event.body);
  });
  record.steps.erase(record.steps.upper_bound(record.last_step), record.steps.end());
  record.evaluations.erase(record.evaluations.upper_bound(record.last_step),
                           record.evaluations.end());
  if (record.steps.empty()) {
    fail(ErrorKind::corrupt, "'{}' records no training step to compare with", path);
  }
  return record;
}

}  // namespace tutti::train
