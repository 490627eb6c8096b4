#include "tutti/train/resume.h"

#include <map>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/text.h"
#include "tutti/train/run_factors.h"

namespace tutti::train {
namespace {

bool may_change(const std::string& key, const spec::Recipe& recipe, const spec::Recipe& wanted) {
  // A teacher is known by its checksum too.
  if (key == "distill.teacher") return recipe.distill.enabled() && wanted.distill.enabled();
  // Where the run began; adapters know their base by its checksum, wherever it lies.
  if (key == "checkpoint.initialize_from") return recipe.lora.enabled();
  // Any number of ranks goes on from any other's checkpoints.
  if (starts_with(key, "parallel.")) return true;
  if (key == "batch.micro") return !(recipe.parallel == wanted.parallel);
  return free_of_arithmetic(key);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> flatten(const spec::Recipe& recipe) {
  return flatten_yaml(spec::to_yaml(recipe));
}

void check_resumable(const spec::Recipe& stored, const spec::Recipe& wanted,
                     const std::string& run_folder) {
  std::map<std::string, std::string> before;
  for (const auto& [key, value] : flatten(stored)) before[key] = value;
  for (const auto& [key, value] : flatten(wanted)) {
    const auto found = before.find(key);
    const bool same = found != before.end() && found->second == value;
    if (same || may_change(key, stored, wanted)) continue;
    if (key == "schedule.decay_steps" && stored.train.steps != wanted.train.steps) {
      fail(
          ErrorKind::usage,
          "{}: the learning rate of the run in '{}' decays over {} steps, and with train.steps: {} "
          "it would over {}; go on with {}={}, or start a new run: another --run or run.name",
          key, run_folder, found->second, wanted.train.steps, value, key, found->second);
    }
    fail(ErrorKind::usage,
         "{}: the run in '{}' was started with {}, not {}; it can go on with other train.steps, "
         "train.target_loss, data.validation, checkpoint.*, evaluate.*, parallel.*, recompute.*, "
         "offload.*, telemetry.* and run.* only. For "
         "anything else start a new run: another --run or run.name",
         key, run_folder, found == before.end() ? "none" : found->second, value);
  }
}

}  // namespace tutti::train
