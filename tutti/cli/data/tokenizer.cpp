#include "tutti/cli/data/tokenizer.h"

#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/data/corpus/format.h"

namespace tutti::cli {
namespace {

// The tokenizer beside the training corpus.
std::string corpus_path(const spec::Recipe& recipe) {
  if (recipe.data.train.empty()) return "";
  return data::corpus_paths(recipe.data.train.corpora.front().prefix).tokenizer;
}

// Corpora of a blend that say what their ids mean must mean the same.
void check_same_tokenizers(FileSystem& files, const spec::Recipe& recipe) {
  std::string first;
  Json meaning;
  for (const spec::CorpusBlend* blend : {&recipe.data.train, &recipe.data.validation}) {
    for (const spec::CorpusShare& share : blend->corpora) {
      const std::string path = data::corpus_paths(share.prefix).tokenizer;
      if (!files.exists(path)) continue;
      Json found = data::tokenizer_identity(parse_json(read_file(files, path), path));
      if (first.empty()) {
        first = path;
        meaning = std::move(found);
      } else if (found != meaning) {
        fail(ErrorKind::usage,
             "data: '{}' and '{}' differ: the corpora of a run share one tokenizer; prepare them "
             "with the same --tokenizer, such as the first one's file",
             first, path);
      }
    }
  }
}

void check_vocabulary(const data::Tokenizer& tokenizer, const spec::Recipe& recipe,
                      const std::string& path) {
  if (tokenizer.vocabulary_size() > recipe.model.vocabulary) {
    fail(ErrorKind::usage,
         "model.vocabulary: {} is smaller than the {} tokens of the tokenizer '{}'; set "
         "model.vocabulary={}",
         recipe.model.vocabulary, tokenizer.vocabulary_size(), path, tokenizer.vocabulary_size());
  }
}

// Whether the file at `path` gives ids the meaning that `tokenizer` does.
bool have_same_meaning(FileSystem& files, const std::string& path,
                       const data::Tokenizer& tokenizer) {
  const auto other = data::load_tokenizer_file(files, path);
  return data::tokenizer_identity(data::tokenizer_json(*other)) ==
         data::tokenizer_identity(data::tokenizer_json(tokenizer));
}

// The tokenizer that is kept with the run of the parameters to start from; empty: none.
std::string initial_tokenizer(FileSystem& files, const spec::Recipe& recipe) {
  std::string run = recipe.checkpoint.initialize_from;
  if (run.empty()) return "";
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  if (checkpoint::parse_step_folder_name(base_name(run))) run = parent_path(run);
  if (base_name(run) == base_name(train::checkpoints_path(""))) run = parent_path(run);
  const std::string path = train::tokenizer_path(run);
  return files.exists(path) ? path : "";
}

// A row of the parameters means a token of the tokenizer that they were learned with. Which tokens
// begin and end documents may differ: that can be learned.
void check_initial_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                             const data::Tokenizer& tokenizer, const std::string& path) {
  const std::string theirs = initial_tokenizer(files, recipe);
  if (theirs.empty()) return;
  const std::string learned = data::tokenizer_hash(*data::load_tokenizer_file(files, theirs));
  if (learned == data::tokenizer_hash(tokenizer)) return;
  fail(ErrorKind::usage,
       "checkpoint.initialize_from: '{}' has learned with another tokenizer ({}) than that of "
       "data.train ({}), so that its parameters are of other tokens; prepare the corpus with "
       "--tokenizer {}, or leave checkpoint.initialize_from out",
       recipe.checkpoint.initialize_from, theirs, path, theirs);
}

// The tokenizer of the corpus, where the run does not have it yet; null: it has, or there is none.
std::unique_ptr<data::Tokenizer> new_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                               const std::string& run_folder) {
  check_same_tokenizers(files, recipe);
  const std::string source = corpus_path(recipe);
  if (source.empty() || !files.exists(source)) return nullptr;
  auto tokenizer = data::load_tokenizer_file(files, source);
  check_vocabulary(*tokenizer, recipe, source);
  const std::string kept = train::tokenizer_path(run_folder);
  if (files.exists(kept) && have_same_meaning(files, kept, *tokenizer)) return nullptr;
  // On another machine only the home of its checkpoints has what the run has learned with.
  const std::string home = train::home_of(recipe, run_folder);
  for (const auto& [folder, checkpoints] :
       {std::pair(run_folder, train::find_checkpoints(files, run_folder)),
        std::pair(home, train::checkpoints_path(home))}) {
    const std::string before = train::tokenizer_path(folder);
    if (!files.exists(before) || have_same_meaning(files, before, *tokenizer) ||
        checkpoint::list_checkpoints(files, checkpoints).empty()) {
      continue;
    }
    fail(ErrorKind::usage,
         "data.train: the tokenizer '{}' is not the one that the run has learned with, '{}'; "
         "prepare the corpus again with that one, or start a new run: another --run or run.name",
         source, before);
  }
  check_initial_tokenizer(files, recipe, *tokenizer, source);
  return tokenizer;
}

}  // namespace

void keep_tokenizer(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder) {
  const auto tokenizer = new_tokenizer(files, recipe, run_folder);
  if (tokenizer == nullptr) return;
  files.create_directories(run_folder);
  data::store_tokenizer(files, *tokenizer, train::tokenizer_path(run_folder));
}

void check_tokenizer(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder) {
  new_tokenizer(files, recipe, run_folder);
}

std::string run_folder_of(const train::LoadedRun& run) {
  return parent_path(parent_path(run.checkpoint));
}

std::unique_ptr<data::Tokenizer> try_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                               const std::string& run_folder) {
  for (const std::string& path : {train::tokenizer_path(run_folder), corpus_path(recipe)}) {
    if (path.empty() || !files.exists(path)) continue;
    auto tokenizer = data::load_tokenizer_file(files, path);
    check_vocabulary(*tokenizer, recipe, path);
    return tokenizer;
  }
  return nullptr;
}

std::unique_ptr<data::Tokenizer> find_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                                const std::string& run_folder) {
  if (auto tokenizer = try_tokenizer(files, recipe, run_folder)) return tokenizer;
  if (corpus_path(recipe).empty()) {
    fail(ErrorKind::not_found,
         "the run in '{}' has no tokenizer: '{}' does not exist; its import said why", run_folder,
         train::tokenizer_path(run_folder));
  }
  fail(ErrorKind::not_found,
       "the run in '{}' has no tokenizer: neither '{}' nor '{}' exists; its corpus was made "
       "without one",
       run_folder, train::tokenizer_path(run_folder), corpus_path(recipe));
}

}  // namespace tutti::cli
