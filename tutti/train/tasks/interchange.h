// Hugging Face models as runs, and runs as Hugging Face models.
//
// An imported run (docs/formats.md, "Imported models"):
//
//   FOLDER/recipe.yaml      the model, and how `tutti eval` evaluates it
//   FOLDER/model.yaml       the model alone, for the recipe of a new run: model: FOLDER/model.yaml
//   FOLDER/checkpoints/     step 0: parameters, no optimizer state
//   FOLDER/huggingface/     config.json and the tokenizer's files, as they were
//   FOLDER/tokenizer.json   the tokenizer in Tutti's form, and tokenizer/ with its originals; not
//                           when Tutti cannot read it
//
// Both ways the result is written under another name beside its own, and renamed when it is whole
// and durable: whatever happens, it is there or it is not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/huggingface/export.h"
#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

using ByteProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

std::string huggingface_path(const std::string& run_folder);
std::string model_path(const std::string& run_folder);  // of an import; other runs have none

struct ImportOptions {
  std::optional<DType> dtype = {};  // absent: as in the files
  checkpoint::RopeLayout rope_layout = checkpoint::RopeLayout::half;
  ByteProgress progress = {};    // what it throws ends the import
  std::string source_name = {};  // recorded instead of the folder's, where not empty
};

struct ImportedRun {
  std::string folder;
  checkpoint::HfFamily family = checkpoint::HfFamily::llama;
  spec::Recipe recipe;
  checkpoint::HfImported parameters;
  std::vector<std::string> kept_files;         // in FOLDER/huggingface
  std::unique_ptr<data::Tokenizer> tokenizer;  // the run's; null: none, and a note says why
  std::vector<std::string> notes;
};

// `source` is a folder that save_pretrained wrote. Throws usage when `folder` is there already or
// config.json is wrong in any way, otherwise as checkpoint::HfFolder and import_parameters.
ImportedRun import_run(FileSystem& files, const std::string& source, const std::string& folder,
                       const ImportOptions& options);

struct ExportOptions {
  std::optional<DType> dtype = {};    // absent: as stored, f32 where adapters are merged
  std::optional<PackKind> pack = {};  // HfExportOptions::pack, with all else in bf16
  int64_t shard_bytes = checkpoint::kHfShardBytes;
  checkpoint::RopeLayout rope_layout = checkpoint::RopeLayout::half;
  bool best = false;  // the checkpoint of the lowest validation loss, not the newest
  // The folder of a Hugging Face model whose tokenizer is copied; absent: that of the run's import,
  // or else the files that the run's own tokenizer was read from; empty: none.
  std::optional<std::string> tokenizer = {};
  ByteProgress progress = {};
};

// In a quantized export: the run's tokenizer where it is of Tutti's own kinds, which have no form
// in transformers.
inline constexpr const char* kOwnTokenizer = "tutti_tokenizer.json";

struct ExportedRun {
  std::string folder;
  std::string checkpoint;  // the step folder that was read
  int64_t step = 0;
  checkpoint::HfFamily family = checkpoint::HfFamily::llama;
  checkpoint::HfExported parameters;
  std::vector<std::string> copied_files;  // of the tokenizer and of generation
  std::vector<std::string> notes;
};

// Copies what goes with the parameters of a run into the folder of another that is made of them:
// its tokenizer with the files it was read from, and FOLDER/huggingface, its own or that of the run
// that `recipe` starts from. What is not there is not copied. Throws corrupt for a damaged
// tokenizer.
void copy_companions(FileSystem& files, const std::string& run_folder, const spec::Recipe& recipe,
                     const std::string& to);

// Copies FOLDER/huggingface of the run that `recipe` starts from (checkpoint.initialize_from) into
// `run_folder`, so that the run can be exported without it. Does nothing when there is none, or
// when the run has its own.
void keep_huggingface(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder);

// `run` is a run folder or one checkpoint folder in it. A damaged checkpoint is an error: no older
// one is taken instead. Throws usage when `folder` is there already.
ExportedRun export_run(FileSystem& files, const std::string& run, const std::string& folder,
                       const ExportOptions& options);

}  // namespace tutti::train
