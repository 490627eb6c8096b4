#include "tutti/train/tasks/interchange.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/new_folder.h"
#include "tutti/base/object_store.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/spec/model/params.h"
#include "tutti/train/session/merged_run.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/tasks/interchange_tokenizer.h"

namespace tutti::train {
namespace {

void copy_file(FileSystem& files, const std::string& from, const std::string& to) {
  write_file_atomic(files, to, read_file(files, from));
}

// Copies the files of a FOLDER/huggingface into that of a run.
void copy_huggingface(FileSystem& files, const std::string& from, const std::string& run_folder) {
  files.create_directories(run_folder);
  const auto copy_to = [&](const std::string& folder) {
    for (const DirectoryEntry& entry : files.list(from)) {
      if (entry.is_directory) continue;
      copy_file(files, join_path(from, entry.name), join_path(folder, entry.name));
    }
  };
  if (object_store(files, run_folder) != nullptr) return copy_to(huggingface_path(run_folder));
  NewFolder out(files, huggingface_path(run_folder));
  copy_to(out.partial());
  out.commit();
}

// Imported models may have a context that no evaluation on this machine could hold.
constexpr int64_t kLongestSequence = 1024;

spec::Recipe recipe_of(const spec::ModelConfig& model, const checkpoint::HfFolder& folder) {
  spec::Recipe recipe;
  recipe.model = model;
  const std::string first = folder.tensor_names().front();
  recipe.precision =
      folder.tensor(first).dtype == DType::f32 ? spec::Precision::f32 : spec::Precision::bf16;
  recipe.batch.global = 1;
  recipe.batch.sequence = std::min(model.context, kLongestSequence);
  recipe.run.name = model.name;
  spec::resolve(recipe);
  spec::validate(recipe);
  return recipe;
}

// bf16 keeps the range of f32 with 8 significant bits, f16 has 11: what is computed is not quite
// what the files say.
void note_rounding(const checkpoint::HfFolder& folder, const spec::Recipe& recipe,
                   std::vector<std::string>& notes) {
  if (recipe.precision != spec::Precision::bf16) return;
  const std::vector<std::string> names = folder.tensor_names();
  const auto count = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return folder.tensor(name).dtype == DType::f16;
  });
  if (count == 0) return;
  notes.push_back(
      fmt::format("{} of {} tensors are f16, and this model is computed in bf16, which rounds them "
                  "from 11 significant bits to 8; set precision: f32 in recipe.yaml, or in the "
                  "recipe of a new run, to compute with all of them",
                  count, names.size()));
}

// The step folder to export: the given one, or the run's newest or best, damaged or not.
std::string choose_checkpoint(FileSystem& files, const std::string& run, bool is_step, bool best) {
  if (is_step) return run;
  const auto infos = checkpoint::list_checkpoints(files, find_checkpoints(files, run));
  const checkpoint::CheckpointInfo* chosen = nullptr;
  for (const checkpoint::CheckpointInfo& info : infos) {
    if (!best) {
      chosen = &info;
    } else if (info.validation_loss &&
               (chosen == nullptr || *info.validation_loss < *chosen->validation_loss)) {
      chosen = &info;
    }
  }
  if (chosen == nullptr) {
    fail(ErrorKind::not_found, "'{}' holds no {} checkpoint; see 'tutti checkpoint list {}'", run,
         best ? "evaluated" : "saved", run);
  }
  if (!chosen->valid) {
    fail(ErrorKind::corrupt, "{}: {}; name an older checkpoint to export that", chosen->path,
         chosen->problem);
  }
  return chosen->path;
}

// Checked before weights are written.
void check_tokenizer_folder(FileSystem& files, const ExportOptions& options) {
  if (!options.tokenizer || options.tokenizer->empty() || files.is_directory(*options.tokenizer)) {
    return;
  }
  fail(ErrorKind::not_found,
       "--tokenizer: '{}' is not a folder; give one with tokenizer.json or tokenizer.model, or "
       "none",
       *options.tokenizer);
}

// The files that go with the export as they are: of the tokenizer and of generation.
std::vector<data::OriginalFile> side_files(FileSystem& files, const std::string& run_folder,
                                           const ExportOptions& options,
                                           std::vector<std::string>& notes) {
  if (options.tokenizer && options.tokenizer->empty()) return {};
  const std::string from = options.tokenizer.value_or(huggingface_path(run_folder));
  std::vector<data::OriginalFile> found;
  bool tokenizer = false;
  for (const std::string& name : checkpoint::hf_side_files()) {
    const std::string path = join_path(from, name);
    if (!files.exists(path)) continue;
    found.push_back({name, read_file(files, path)});
    tokenizer |= name == "tokenizer.json" || name == "tokenizer.model" || name == "vocab.json";
  }
  if (tokenizer) return found;
  const size_t notes_before = notes.size();
  if (!options.tokenizer) {
    for (data::OriginalFile& file : tokenizer_originals(files, run_folder, notes)) {
      const auto same = [&](const data::OriginalFile& other) { return other.name == file.name; };
      if (std::any_of(found.begin(), found.end(), same)) continue;  // the import's own
      found.push_back(std::move(file));
      tokenizer = true;
    }
  }
  if (!tokenizer && notes.size() == notes_before) {
    notes.push_back(
        options.tokenizer
            ? fmt::format("no tokenizer: '{}' has no tokenizer files of transformers", from)
            : "no tokenizer: the run has none; give --tokenizer DIR, or none");
  }
  return found;
}

void add_own_tokenizer(FileSystem& files, const std::string& run_folder, const std::string& folder,
                       std::vector<std::string>& names) {
  const std::string path = tokenizer_path(run_folder);
  if (!files.exists(path)) return;
  const auto tokenizer = data::load_tokenizer_file(files, path);
  if (!tokenizer->originals().empty()) return;
  data::store_tokenizer(files, *tokenizer, join_path(folder, kOwnTokenizer));
  names.emplace_back(kOwnTokenizer);
}

Json original_config(FileSystem& files, const std::string& run_folder) {
  const std::string path = join_path(huggingface_path(run_folder), checkpoint::kHfConfig);
  if (!files.exists(path)) return Json::object();
  Json config = parse_json(read_file(files, path), path);
  return config.is_object() ? config : Json::object();
}

}  // namespace

std::string huggingface_path(const std::string& run_folder) {
  return join_path(run_folder, "huggingface");
}

std::string model_path(const std::string& run_folder) {
  return join_path(run_folder, "model.yaml");
}

ImportedRun import_run(FileSystem& files, const std::string& source, const std::string& folder,
                       const ImportOptions& options) {
  const checkpoint::HfFolder from(files, source);
  checkpoint::HfModel hf = checkpoint::read_hf_config(from.config(), from.config_path());
  NewFolder out(files, folder);
  hf.model.name = base_name(out.path());

  ImportedRun run;
  run.folder = out.path();
  run.family = hf.family;
  run.recipe = recipe_of(hf.model, from);
  run.notes = from.notes();
  run.notes.insert(run.notes.end(), hf.notes.begin(), hf.notes.end());
  note_rounding(from, run.recipe, run.notes);

  checkpoint::State state = to_checkpoint_state(RunState{}, run.recipe);
  state.training["imported"] = {
      {"from", options.source_name.empty() ? source : options.source_name},
      {"model_type", checkpoint::hf_family_name(hf.family)}};
  checkpoint::HfImportOptions import;
  import.dtype = options.dtype;
  import.rope_layout = options.rope_layout;
  import.progress = options.progress;
  run.parameters = checkpoint::import_parameters(files, from, hf, state,
                                                 checkpoints_path(out.partial()), import);
  const std::string kept = huggingface_path(out.partial());
  files.create_directories(kept);
  copy_file(files, from.config_path(), join_path(kept, checkpoint::kHfConfig));
  run.kept_files.emplace_back(checkpoint::kHfConfig);
  for (const std::string& name : from.side_files()) {
    copy_file(files, join_path(from.path(), name), join_path(kept, name));
    run.kept_files.push_back(name);
  }
  run.tokenizer = take_tokenizer(files, from.path(), hf.model.vocabulary, out.partial(), run.notes);
  write_file_atomic(files, model_path(out.partial()), spec::to_yaml(hf.model));
  write_file_atomic(files, recipe_path(out.partial()), spec::to_yaml(run.recipe));
  out.commit();
  run.parameters.written.path =
      join_path(checkpoints_path(run.folder), base_name(run.parameters.written.path));
  return run;
}

void keep_huggingface(FileSystem& files, const spec::Recipe& recipe,
                      const std::string& run_folder) {
  std::string from = recipe.checkpoint.initialize_from;
  if (from.empty() || files.exists(huggingface_path(run_folder))) return;
  while (from.size() > 1 && from.back() == '/') from.pop_back();
  if (checkpoint::parse_step_folder_name(base_name(from))) from = parent_path(from);
  if (base_name(from) == base_name(checkpoints_path(""))) from = parent_path(from);
  const std::string kept = huggingface_path(from);
  if (files.is_directory(kept)) copy_huggingface(files, kept, run_folder);
}

void copy_companions(FileSystem& files, const std::string& run_folder, const spec::Recipe& recipe,
                     const std::string& to) {
  files.create_directories(to);
  if (const std::string path = tokenizer_path(run_folder); files.exists(path)) {
    data::store_tokenizer(files, *data::load_tokenizer_file(files, path), tokenizer_path(to));
  }
  const std::string own = huggingface_path(run_folder);
  if (files.is_directory(own)) {
    copy_huggingface(files, own, to);
  } else {
    keep_huggingface(files, recipe, to);
  }
}

ExportedRun export_run(FileSystem& files, const std::string& run, const std::string& folder,
                       const ExportOptions& options) {
  std::string given = run;
  while (given.size() > 1 && given.back() == '/') given.pop_back();
  const bool is_step = checkpoint::parse_step_folder_name(base_name(given)).has_value();
  const std::string run_folder = is_step ? parent_path(parent_path(given)) : given;
  const spec::Recipe recipe = load_recipe(files, run_folder);

  ExportedRun exported;
  exported.checkpoint = choose_checkpoint(files, given, is_step, options.best);
  check_tokenizer_folder(files, options);
  exported.family = checkpoint::hf_family_of(recipe.model, original_config(files, run_folder));

  NewFolder out(files, folder);
  std::string source = exported.checkpoint;
  const std::string merged = join_path(out.partial(), "merged");
  if (recipe.lora.enabled()) {
    LoadedRun loaded = load_run(files, source, false);
    exported.notes.push_back(
        fmt::format("the adapters are merged into {}; for the adapters alone see 'tutti checkpoint "
                    "export-adapter'",
                    loaded.base));
    source = write_merged(files, loaded, merged).path;
  }
  std::optional<checkpoint::Reader> reader(std::in_place, files, source);
  exported.step = reader->manifest().state.step;
  checkpoint::HfExportOptions to;
  to.dtype = options.pack ? DType::bf16 : options.dtype;
  to.pack = options.pack;
  to.shard_bytes = options.shard_bytes;
  to.rope_layout = options.rope_layout;
  to.original = original_config(files, run_folder);
  to.progress = options.progress;
  exported.parameters =
      checkpoint::export_parameters(files, *reader, recipe.model, out.partial(), to);
  reader.reset();
  files.remove_tree(merged);
  for (const data::OriginalFile& file : side_files(files, run_folder, options, exported.notes)) {
    write_file_atomic(files, join_path(out.partial(), file.name), file.bytes);
    exported.copied_files.push_back(file.name);
  }
  if (options.pack && !options.tokenizer) {
    add_own_tokenizer(files, run_folder, out.partial(), exported.copied_files);
  }
  if (exported.parameters.zero_tensors > 0) {
    exported.notes.push_back(
        fmt::format("{} biases, which the model does not have and gpt2 needs, are zeros",
                    exported.parameters.zero_tensors));
  }
  out.commit();
  exported.folder = out.path();
  return exported;
}

}  // namespace tutti::train
