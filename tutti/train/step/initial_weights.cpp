#include "tutti/train/step/initial_weights.h"

#include <set>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti/train/session/resume.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_state.h"

namespace tutti::train {
namespace {

constexpr const char* kKey = "checkpoint.initialize_from";
constexpr std::string_view kPrefix = "param.";

std::string stored_name(const spec::PlacedParam& placed) {
  return std::string(kPrefix) + placed.name;
}

// What to do about a tensor whose shapes differ.
std::string remedy(const std::string& name, const std::vector<int64_t>& there) {
  if (name == "embedding.token.weight" || name == "head.weight") {
    return fmt::format(
        "the vocabularies differ, and a row belongs to a token of its own tokenizer: set "
        "model.vocabulary={} and train on a corpus prepared with that run's tokenizer",
        there.empty() ? 0 : there.front());
  }
  if (name == "embedding.position.weight") {
    return fmt::format("set model.context={}, the length that its positions were learned for",
                       there.empty() ? 0 : there.front());
  }
  return "give the recipe the model of that checkpoint";
}

void check_shapes(const checkpoint::Reader& reader, const spec::ParamLayout& layout,
                  const std::function<bool(const spec::PlacedParam&)>& loaded) {
  std::set<std::string> wanted;
  for (auto placed = layout.params.rbegin(); placed != layout.params.rend(); ++placed) {
    if (!loaded(*placed)) continue;
    wanted.insert(stored_name(*placed));
    if (!reader.contains(stored_name(*placed))) {
      fail(ErrorKind::usage, "{}: '{}' has no tensor '{}', which this model needs; {}", kKey,
           reader.path(), placed->name,
           placed->name == "head.weight" ? "its embeddings are tied: set model.tied_embeddings=true"
                                         : "give the recipe the model of that checkpoint");
    }
    const checkpoint::TensorRecord& record = reader.tensor(stored_name(*placed));
    if (record.shape != placed->param.shape) {
      fail(ErrorKind::usage, "{}: '{}': tensor '{}' is {} there and {} in this model; {}", kKey,
           reader.path(), placed->name, checkpoint::format_shape(record.shape),
           checkpoint::format_shape(placed->param.shape), remedy(placed->name, record.shape));
    }
    if (!checkpoint::is_parameter_type(record.dtype)) {
      fail(ErrorKind::unsupported,
           "{}: '{}': tensor '{}' is {}; parameters are read as f32, bf16 or f16", kKey,
           reader.path(), placed->name, dtype_name(record.dtype));
    }
  }
  for (const checkpoint::TensorRecord& record : reader.manifest().tensors) {
    if (!starts_with(record.name, kPrefix) || wanted.count(record.name) > 0) continue;
    fail(ErrorKind::usage, "{}: '{}' holds tensor '{}', which this model lacks; {}", kKey,
         reader.path(), record.name.substr(kPrefix.size()),
         record.name == "param.head.weight"
             ? "its embeddings are not tied: set model.tied_embeddings=false"
             : "give the recipe the model of that checkpoint");
  }
}

// Fields that no shape shows, such as the number of heads. A longer context is not another model
// where positions are not learned.
void check_model(const checkpoint::Reader& reader, const spec::ModelConfig& model) {
  const Json& saved = reader.manifest().state.model;
  const Json described = describe_model(model);
  for (const auto& [key, wanted] : described.items()) {
    if (key == "context" || !saved.contains(key) || saved.at(key) == wanted) continue;
    fail(ErrorKind::usage,
         "{}: '{}' holds a model with {} {}, and this one has {}; set model.{} to the same", kKey,
         reader.path(), key, saved.at(key).dump(), wanted.dump(), key);
  }
}

bool is_loaded(const spec::PlacedParam& placed, const spec::Recipe& recipe) {
  return !recipe.lora.enabled() || !placed.param.trainable;
}

// Of the recipe, whose model the checkpoint holds.
spec::ParamLayout fitting_layout(const checkpoint::Reader& reader, const spec::Recipe& recipe) {
  if (reader.manifest().state.base) {
    fail(ErrorKind::usage,
         "{}: '{}' holds adapters only, not the model below them; merge the two first: 'tutti "
         "checkpoint merge RUN --out FOLDER'",
         kKey, reader.path());
  }
  spec::ParamLayout layout = spec::param_layout(spec::param_table(recipe.model, recipe.lora));
  check_shapes(reader, layout,
               [&](const spec::PlacedParam& placed) { return is_loaded(placed, recipe); });
  check_model(reader, recipe.model);
  return layout;
}

// Of the run that the checkpoint lies in, where it lies in one.
void check_recipe_beside(FileSystem& files, const std::string& checkpoint, const char* key) {
  const std::string run = parent_path(parent_path(checkpoint));
  if (!files.exists(recipe_path(run))) return;
  const std::string manifest = join_path(checkpoint, checkpoint::kManifestName);
  try {
    check_recipe_of(checkpoint::Reader(files, checkpoint).manifest().state.training, manifest,
                    load_recipe(files, run), run);
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", key, error.what());
  }
}

}  // namespace

std::string find_weights(FileSystem& files, const std::string& folder, const char* key) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (files.exists(join_path(path, checkpoint::kManifestName))) {
    check_recipe_beside(files, path, key);
    return path;
  }
  refuse_quantized(files, path, fmt::format("cannot be {}", key));
  const std::string inside = find_checkpoints(files, path);
  const auto newest = checkpoint::newest_valid(
      files, files.is_directory(inside) ? inside : path, [](const auto&, const auto&) {},
      checkpoint::parallel_threads, [](const std::string&) { return false; });
  if (newest) {
    check_recipe_beside(files, newest->path(), key);
    return newest->path();
  }
  fail(ErrorKind::not_found,
       "{}: '{}' holds no valid checkpoint; give a run folder or one of its step-NNNNNNNN folders",
       key, folder);
}

void load_weights(FileSystem& files, const std::string& path, const spec::Recipe& recipe,
                  const ParameterSink& sink) {
  checkpoint::Reader reader(files, path);
  const spec::ParamLayout layout = fitting_layout(reader, recipe);
  std::vector<float> values;
  for (const spec::PlacedParam& placed : layout.params) {
    if (!is_loaded(placed, recipe)) continue;
    values.resize(static_cast<size_t>(placed.param.count()));
    reader.load(stored_name(placed), DType::f32, placed.param.shape, values.data());
    sink(placed, values);
    reader.release(stored_name(placed));
  }
}

void check_weights(FileSystem& files, const std::string& path, const spec::Recipe& recipe) {
  const checkpoint::Reader reader(files, path);
  fitting_layout(reader, recipe);
}

checkpoint::Base base_of(FileSystem& files, const std::string& path) {
  const std::string text = read_file(files, join_path(path, checkpoint::kManifestName));
  return {files.resolve(path), hash_hex(hash_text(text))};
}

std::string find_base(FileSystem& files, const checkpoint::Base& base, const std::string& given) {
  return find_recorded(
      files, base, given, "base checkpoint",
      "these adapters need exactly the checkpoint they were trained on: put it back, or say where "
      "it is with checkpoint.initialize_from");
}

std::string find_recorded(FileSystem& files, const checkpoint::Base& base, const std::string& given,
                          const char* what, const char* remedy) {
  std::vector<std::string> candidates = {base.path};
  if (!given.empty()) {
    const std::string step = base_name(base.path);
    candidates.insert(candidates.end(), {given, join_path(given, step),
                                         join_path(find_checkpoints(files, given), step)});
  }
  std::string changed;
  for (const std::string& candidate : candidates) {
    if (!files.exists(join_path(candidate, checkpoint::kManifestName))) continue;
    if (base_of(files, candidate).manifest_xxh3 == base.manifest_xxh3) return candidate;
    if (changed.empty()) changed = candidate;
  }
  if (changed.empty()) {
    fail(ErrorKind::not_found, "the {} '{}' is missing; {}", what, base.path, remedy);
  }
  fail(ErrorKind::corrupt, "'{}' is no longer the {}: its manifest has checksum {}, not {}; {}",
       changed, what, base_of(files, changed).manifest_xxh3, base.manifest_xxh3, remedy);
}

}  // namespace tutti::train
