#include "tutti/train/run_folder.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/checkpoint/reader.h"
#include "tutti/spec/params.h"
#include "tutti/train/initial_weights.h"

namespace tutti::train {
namespace {

// The checkpoint folder to read: the given one, the best or the newest valid of the run.
std::optional<std::string> choose_checkpoint(FileSystem& files, const std::string& folder,
                                             bool best) {
  if (!best) {
    const auto newest = checkpoint::newest_valid(files, folder, [](const auto&, const auto&) {});
    return newest ? std::optional(newest->path()) : std::nullopt;
  }
  std::optional<std::string> chosen;
  double lowest = std::numeric_limits<double>::infinity();
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(files, folder)) {
    if (info.valid && info.validation_loss && *info.validation_loss < lowest) {
      lowest = *info.validation_loss;
      chosen = info.path;
    }
  }
  return chosen;
}

}  // namespace

std::string recipe_path(const std::string& run) { return join_path(run, "recipe.yaml"); }
std::string checkpoints_path(const std::string& run) { return join_path(run, "checkpoints"); }
std::string mlperf_log_path(const std::string& run) { return join_path(run, "mlperf.log"); }
std::string events_path(const std::string& run) { return join_path(run, "events.jsonl"); }
std::string tokenizer_path(const std::string& run) { return join_path(run, "tokenizer.json"); }

spec::Recipe load_recipe(FileSystem& files, const std::string& run) {
  const std::string path = recipe_path(run);
  if (!files.exists(path)) {
    fail(ErrorKind::not_found,
         "'{}' is not a run folder: there is no '{}'; give the folder that 'tutti train' printed",
         run, path);
  }
  return spec::parse_recipe(read_file(files, path), path, {}, "");
}

LoadedRun load_run(FileSystem& files, const std::string& path, bool best) {
  std::string given = path;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  const bool is_step = checkpoint::parse_step_folder_name(base_name(given)).has_value();
  const std::string run = is_step ? parent_path(parent_path(given)) : given;
  LoadedRun loaded;
  loaded.recipe = load_recipe(files, run);
  const std::optional<std::string> chosen =
      is_step ? std::optional(given) : choose_checkpoint(files, checkpoints_path(run), best);
  if (!chosen) {
    fail(ErrorKind::not_found, "'{}' holds no {} checkpoint; see 'tutti checkpoint list {}'", run,
         best ? "evaluated" : "valid", run);
  }
  checkpoint::Reader reader(files, *chosen);
  const spec::ParamLayout layout =
      spec::param_layout(spec::param_table(loaded.recipe.model, loaded.recipe.lora));
  loaded.master.assign(static_cast<size_t>(layout.elements), 0.0F);
  std::vector<checkpoint::TensorTarget> targets;
  for (const spec::PlacedParam& placed : layout.params) {
    if (!placed.param.trainable) break;
    targets.push_back({"param." + placed.name, DType::f32, placed.param.shape,
                       loaded.master.data() + placed.element_offset});
  }
  reader.load(targets);
  if (loaded.recipe.lora.enabled()) {
    const std::optional<checkpoint::Base>& base = reader.manifest().state.base;
    if (!base) {
      fail(ErrorKind::corrupt, "'{}' holds adapters without saying what is below them", *chosen);
    }
    loaded.base = find_base(files, *base, loaded.recipe.checkpoint.initialize_from);
    load_weights(files, loaded.base, loaded.recipe,
                 [&](const spec::PlacedParam& placed, const std::vector<float>& values) {
                   std::copy(values.begin(), values.end(),
                             loaded.master.begin() + placed.element_offset);
                 });
  }
  loaded.checkpoint = *chosen;
  loaded.step = reader.manifest().state.step;
  return loaded;
}

}  // namespace tutti::train
