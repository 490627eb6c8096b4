#include "tutti/cli/tokenizer.h"

#include "tutti/base/error.h"
#include "tutti/data/corpus_format.h"

namespace tutti::cli {
namespace {

std::string kept_path(const std::string& run_folder) {
  return join_path(run_folder, "tokenizer.json");
}

void check_vocabulary(const data::Tokenizer& tokenizer, const spec::Recipe& recipe,
                      const std::string& path) {
  if (tokenizer.vocabulary_size() > recipe.model.vocabulary) {
    fail(ErrorKind::usage,
         "model.vocabulary: {} is smaller than the {} tokens of the corpus' tokenizer '{}'; set "
         "model.vocabulary={}",
         recipe.model.vocabulary, tokenizer.vocabulary_size(), path, tokenizer.vocabulary_size());
  }
}

}  // namespace

void keep_tokenizer(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder) {
  const std::string source = data::corpus_paths(recipe.data.train).tokenizer;
  if (!files.exists(source)) return;
  check_vocabulary(*data::load_tokenizer_file(files, source), recipe, source);
  files.create_directories(run_folder);
  write_file_atomic(files, kept_path(run_folder), read_file(files, source));
}

std::unique_ptr<data::Tokenizer> find_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                                const std::string& run_folder) {
  for (const std::string& path :
       {kept_path(run_folder), data::corpus_paths(recipe.data.train).tokenizer}) {
    if (!files.exists(path)) continue;
    auto tokenizer = data::load_tokenizer_file(files, path);
    check_vocabulary(*tokenizer, recipe, path);
    return tokenizer;
  }
  fail(ErrorKind::not_found,
       "the run in '{}' has no tokenizer: neither '{}' nor '{}' exists; its corpus was made "
       "without one",
       run_folder, kept_path(run_folder), data::corpus_paths(recipe.data.train).tokenizer);
}

}  // namespace tutti::cli
