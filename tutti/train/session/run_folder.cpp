#include "tutti/train/session/run_folder.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/json.h"
#include "tutti/base/object_store.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/packing_config.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/spec/model/params.h"
#include "tutti/train/session/resume.h"
#include "tutti/train/step/initial_weights.h"

namespace tutti::train {
namespace {

// Tensors are read several at once, by all cores, and handed on before the next.
constexpr int64_t kElementsAtOnce = int64_t{1} << 23;

// The checkpoint to read: the best or the newest valid of the run.
std::optional<checkpoint::Reader> choose_checkpoint(FileSystem& files, const std::string& folder,
                                                    bool best) {
  if (!best) {
    return checkpoint::newest_valid(
        files, folder, [](const auto&, const auto&) {}, checkpoint::parallel_threads,
        [](const std::string& tensor) { return starts_with(tensor, "param."); });
  }
  std::optional<std::string> chosen;
  double lowest = std::numeric_limits<double>::infinity();
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(files, folder)) {
    if (info.valid && info.validation_loss && *info.validation_loss < lowest) {
      lowest = *info.validation_loss;
      chosen = info.path;
    }
  }
  if (!chosen) return std::nullopt;
  return checkpoint::Reader(files, *chosen);
}

// So many of its outermost rows at a time that few elements are in memory beside what takes them.
void read_in_parts(checkpoint::Reader& reader, const spec::PlacedParam& placed,
                   const RowSink& sink) {
  const std::vector<int64_t>& shape = placed.param.shape;
  const int64_t row_elements = placed.param.count() / shape.front();
  const int64_t most_rows = std::max<int64_t>(1, kElementsAtOnce / row_elements);
  std::vector<float> values;
  for (int64_t row = 0; row < shape.front(); row += most_rows) {
    std::vector<int64_t> part = shape;
    std::vector<int64_t> offset(shape.size(), 0);
    part.front() = std::min(most_rows, shape.front() - row);
    offset.front() = row;
    values.resize(static_cast<size_t>(part.front() * row_elements));
    reader.load({{"param." + placed.name, DType::f32, part, values.data(), shape, offset}});
    sink(placed, row * row_elements, values);
  }
  reader.release("param." + placed.name);
}

}  // namespace

void check_run_folder(FileSystem& files, const std::string& run) {
  if (object_store(files, run) == nullptr) return;
  fail(ErrorKind::usage,
       "'{}' cannot be a run folder: events are appended to files there; choose a local one, and "
       "checkpoint.store=s3://BUCKET/PREFIX for its checkpoints",
       run);
}

std::string recipe_path(const std::string& run) { return join_path(run, "recipe.yaml"); }
std::string checkpoints_path(const std::string& run) { return join_path(run, "checkpoints"); }

std::string home_of(const spec::Recipe& recipe, const std::string& run) {
  if (recipe.checkpoint.store.empty()) return run;
  std::string given = run;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  return join_path(recipe.checkpoint.store, base_name(given));
}

std::string find_checkpoints(FileSystem& files, const std::string& run) {
  const std::string path = recipe_path(run);
  if (object_store(files, run) != nullptr || !files.exists(path)) return checkpoints_path(run);
  spec::Recipe recipe;
  try {
    for (const auto& [key, value] : flatten_yaml(read_file(files, path))) {
      if (key != "checkpoint.store") continue;
      const bool is_quoted = starts_with(value, "\"");  // as texts of a recipe are
      recipe.checkpoint.store = is_quoted ? parse_json(value, path).get<std::string>() : value;
    }
  } catch (const Error& error) {
    // A damaged recipe is reported where it is needed.
    if (error.kind() == ErrorKind::permission || error.kind() == ErrorKind::io) throw;
  }
  return checkpoints_path(home_of(recipe, run));
}

std::string mlperf_log_path(const std::string& run) { return join_path(run, "mlperf.log"); }
std::string events_path(const std::string& run) { return join_path(run, "events.jsonl"); }
std::string tokenizer_path(const std::string& run) { return join_path(run, "tokenizer.json"); }

void refuse_quantized(FileSystem& files, const std::string& folder, const std::string& what) {
  const std::string path = join_path(folder, checkpoint::kHfConfig);
  if (object_store(files, folder) != nullptr || !files.exists(path)) return;
  const Json config = parse_json(read_file(files, path), path);
  if (!checkpoint::has_packing(config)) return;
  fail(ErrorKind::unsupported,
       "'{}' {}: its weights are quantized, for serving (tutti endpoint, tutti generate); take the "
       "run or the model that it was made of",
       folder, what);
}

spec::Recipe load_recipe(FileSystem& files, const std::string& run) {
  const std::string path = recipe_path(run);
  if (!files.exists(path)) {
    refuse_quantized(files, run, "is not a run folder");
    fail(ErrorKind::not_found,
         "'{}' is not a run folder: no '{}'; give the folder that 'tutti train' printed", run,
         path);
  }
  return spec::parse_recipe(read_file(files, path), path, {}, "");
}

LoadedRun find_run(FileSystem& files, const std::string& path, bool best) {
  std::string given = path;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  const bool is_step = checkpoint::parse_step_folder_name(base_name(given)).has_value();
  const std::string run = is_step ? parent_path(parent_path(given)) : given;
  LoadedRun found;
  found.recipe = load_recipe(files, run);
  std::optional<checkpoint::Reader> chosen;
  if (is_step) {
    chosen.emplace(files, given);
  } else {
    chosen = choose_checkpoint(files, find_checkpoints(files, run), best);
  }
  if (!chosen) {
    fail(ErrorKind::not_found, "'{}' holds no {} checkpoint; see 'tutti checkpoint list {}'", run,
         best ? "evaluated" : "valid", run);
  }
  found.checkpoint = chosen->path();
  const checkpoint::State& state = chosen->manifest().state;
  check_recipe_of(state.training, join_path(found.checkpoint, checkpoint::kManifestName),
                  found.recipe, run);
  found.step = state.step;
  if (object_store(files, found.checkpoint) != nullptr) {
    found.reader = std::make_shared<checkpoint::Reader>(std::move(*chosen));
  }
  return found;
}

void read_parameters(FileSystem& files, LoadedRun& run, const RowSink& sink) {
  std::shared_ptr<checkpoint::Reader> opened = std::exchange(run.reader, nullptr);
  if (!opened) opened = std::make_shared<checkpoint::Reader>(files, run.checkpoint);
  checkpoint::Reader& reader = *opened;
  const spec::ParamLayout layout =
      spec::param_layout(spec::param_table(run.recipe.model, run.recipe.lora));
  const auto first_frozen =
      std::find_if(layout.params.begin(), layout.params.end(),
                   [](const spec::PlacedParam& placed) { return !placed.param.trainable; });
  for (auto next = layout.params.begin(); next != first_frozen;) {
    if (next->param.count() > kElementsAtOnce) {
      read_in_parts(reader, *next++, sink);
      continue;
    }
    std::vector<std::vector<float>> values;
    std::vector<checkpoint::TensorTarget> targets;
    const auto begin = next;
    int64_t elements = 0;
    do {
      const spec::Param& param = next->param;
      elements += param.count();
      values.emplace_back(static_cast<size_t>(param.count()));
      targets.push_back({"param." + next->name, DType::f32, param.shape, values.back().data()});
      ++next;
    } while (next != first_frozen && elements + next->param.count() <= kElementsAtOnce);
    reader.load(targets);
    for (size_t i = 0; i < values.size(); ++i) {
      sink(*(begin + static_cast<std::ptrdiff_t>(i)), 0, values[i]);
      reader.release(targets[i].name);
    }
  }
  if (!run.recipe.lora.enabled()) return;
  const std::optional<checkpoint::Base>& base = reader.manifest().state.base;
  if (!base) {
    fail(ErrorKind::corrupt, "'{}' holds adapters without saying what is below them",
         run.checkpoint);
  }
  run.base = find_base(files, *base, run.recipe.checkpoint.initialize_from);
  load_weights(files, run.base, run.recipe,
               [&](const spec::PlacedParam& placed, const std::vector<float>& values) {
                 sink(placed, 0, values);
               });
}

LoadedRun load_run(FileSystem& files, const std::string& path, bool best) {
  LoadedRun loaded = find_run(files, path, best);
  const spec::ParamLayout layout =
      spec::param_layout(spec::param_table(loaded.recipe.model, loaded.recipe.lora));
  loaded.master.assign(static_cast<size_t>(layout.elements), 0.0F);
  read_parameters(
      files, loaded,
      [&](const spec::PlacedParam& placed, int64_t first, const std::vector<float>& values) {
        std::copy(values.begin(), values.end(),
                  loaded.master.begin() + placed.element_offset + first);
      });
  return loaded;
}

}  // namespace tutti::train
