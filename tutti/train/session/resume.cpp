#include "tutti/train/session/resume.h"

#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/train/session/run_factors.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_history.h"

namespace tutti::train {
namespace {

bool may_change(const std::string& key, const spec::Recipe& recipe, const spec::Recipe& wanted) {
  // A teacher is known by its checksum too.
  if (key == "distill.teacher") return recipe.distill.enabled() && wanted.distill.enabled();
  // Where the run began; adapters know their base by its checksum, wherever it lies.
  if (key == "checkpoint.initialize_from") return recipe.lora.enabled();
  // Checkpoints of any number of ranks resume on any other.
  if (starts_with(key, "parallel.")) return true;
  if (key == "batch.micro") return !(recipe.parallel == wanted.parallel);
  return free_of_arithmetic(key);
}

constexpr const char* kEdited = "was edited or damaged";

std::string resume_remedy(const std::string& first) {
  return first +
         ", start a new run (another --run or run.name), or resume anyway "
         "(--force-resume)";
}

std::map<std::string, std::string> flat_map(const spec::Recipe& recipe) {
  const auto pairs = flatten(recipe);
  return {pairs.begin(), pairs.end()};
}

std::string value_or_none(const std::map<std::string, std::string>& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "none" : found->second;
}

[[noreturn]] void fail_edited(const std::string& run_folder, const std::string& key,
                              const std::string& value, const std::string& was) {
  fail(ErrorKind::usage, "{}: {} is {}, and the run was saved with {}: the file {}; {}",
       recipe_path(run_folder), key, value, was, kEdited,
       resume_remedy(fmt::format("set it back ({}={} on the command line does)", key, was)));
}

// Keys without which the same parameters give other numbers.
bool decides_results(const std::string& key, bool is_run) {
  if (key == "model.name") return false;
  if (starts_with(key, "model.") || starts_with(key, "lora.")) return true;
  return is_run && (key == "precision" || key == "batch.sequence" || key == "data.packing");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> flatten(const spec::Recipe& recipe) {
  return flatten_yaml(spec::to_yaml(recipe));
}

std::optional<SavedRecipe> saved_recipe(FileSystem& files, const std::string& run_folder) {
  std::string newest;
  for (const auto& info :
       checkpoint::list_checkpoints(files, find_checkpoints(files, run_folder))) {
    if (info.valid) newest = info.path;
  }
  if (newest.empty()) return std::nullopt;
  const std::string path = join_path(newest, checkpoint::kManifestName);
  const Json training = checkpoint::parse_manifest(read_file(files, path), path).state.training;
  const auto yaml = training.find("recipe");
  if (yaml == training.end() || !yaml->is_string()) return std::nullopt;
  const auto id = training.find("run_id");
  const bool has_id = id != training.end() && id->is_string();
  return SavedRecipe{path, yaml->get<std::string>(), has_id ? id->get<std::string>() : ""};
}

std::optional<SavedRecipe> started_recipe(FileSystem& files, const std::string& run_folder) {
  const std::string yaml = read_history(files, run_folder).recipe;
  if (yaml.empty()) return std::nullopt;
  return SavedRecipe{events_path(run_folder), yaml, "", "details.recipe of its run_started"};
}

void check_own(FileSystem& files, const SavedRecipe& saved, const std::string& run_folder) {
  if (saved.run_id.empty()) return;
  const RunHistory history = read_history(files, run_folder);
  if (history.ids.empty() || history.ids.count(saved.run_id) > 0) return;
  fail(ErrorKind::usage,
       "'{}' is a checkpoint of another run ({}); take it away, start a new run from it "
       "(checkpoint.initialize_from), or resume from it anyway (--force-resume)",
       parent_path(saved.path), saved.run_id);
}

void check_whole(const std::string& text, const SavedRecipe& saved, const std::string& run_folder) {
  std::set<std::string> written;
  for (const auto& [key, value] : flatten_yaml(text)) written.insert(key);
  std::set<std::string> known;  // a version that does not know a key does not write it
  for (const auto& [key, value] : flatten(spec::parse_recipe(saved.yaml, saved.path, {}, ""))) {
    known.insert(key);
  }
  for (const auto& [key, value] : flatten_yaml(saved.yaml)) {
    if (written.count(key) > 0 || known.count(key) == 0) continue;
    fail(ErrorKind::usage, "{}: {} is missing, and the run was saved with {}: the file {}; {}",
         recipe_path(run_folder), key, value, kEdited,
         resume_remedy(
             fmt::format("give the recipe that the run was started with (tutti train RECIPE "
                         "--run {})",
                         run_folder)));
  }
}

void check_resumable(const spec::Recipe& stored, const spec::Recipe& wanted,
                     const std::string& run_folder, const spec::Recipe* file) {
  const std::map<std::string, std::string> before = flat_map(stored);
  std::map<std::string, std::string> of_file;
  if (file != nullptr) of_file = flat_map(*file);
  for (const auto& [key, value] : flatten(wanted)) {
    const std::string was = value_or_none(before, key);
    if (was == value || may_change(key, stored, wanted)) continue;
    if (const auto edited = of_file.find(key); edited != of_file.end() && edited->second == value) {
      fail_edited(run_folder, key, value, was);
    }
    if (key == "schedule.decay_steps" && stored.train.steps != wanted.train.steps) {
      fail(
          ErrorKind::usage,
          "{}: the learning rate of the run in '{}' decays over {} steps, and with train.steps: {} "
          "it would over {}; continue with {}={}, or start a new run: another --run or run.name",
          key, run_folder, was, wanted.train.steps, value, key, was);
    }
    fail(ErrorKind::usage,
         "{}: the run in '{}' was started with {}, not {}; only these may change: train.steps, "
         "train.target_loss, data.validation, checkpoint.*, evaluate.*, parallel.*, recompute.*, "
         "offload.*, telemetry.* and run.*; for anything else start a new run (another --run or "
         "run.name), or force it with --force-resume",
         key, run_folder, was, value);
  }
}

void check_unedited(const spec::Recipe& stored, const spec::Recipe& wanted,
                    const std::string& run_folder, const spec::Recipe& file) {
  const std::map<std::string, std::string> before = flat_map(stored);
  const std::map<std::string, std::string> of_file = flat_map(file);
  for (const auto& [key, value] : flatten(wanted)) {
    const std::string was = value_or_none(before, key);
    if (was == value || may_change(key, stored, wanted)) continue;
    if (value_or_none(of_file, key) == value) fail_edited(run_folder, key, value, was);
  }
}

void check_recipe_of(const Json& training, const std::string& manifest_path,
                     const spec::Recipe& recipe, const std::string& run_folder) {
  const auto yaml = training.find("recipe");
  if (yaml == training.end() || !yaml->is_string()) return;
  std::map<std::string, std::string> saved;
  try {
    saved = flat_map(spec::parse_recipe(yaml->get<std::string>(), manifest_path, {}, ""));
  } catch (const Error&) {
    return;  // of a version whose keys this one no longer has
  }
  const auto id = training.find("run_id");
  const bool is_run = id != training.end() && id->is_string() && *id != "";
  std::map<std::string, std::string> now = flat_map(recipe);
  for (const auto& [key, value] : saved) now.try_emplace(key, "none");
  for (const auto& [key, value] : now) {
    const std::string was = value_or_none(saved, key);
    if (was == value || !decides_results(key, is_run)) continue;
    fail(ErrorKind::usage,
         "{}: {} is {}, and '{}' was saved with {}: the file {}; set it back, the manifest has the "
         "recipe under training.recipe",
         recipe_path(run_folder), key, value, manifest_path, was, kEdited);
  }
}

}  // namespace tutti::train
