#include "tutti/train/tasks/interchange_tokenizer.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/tokenizer_source.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::train {
namespace {

// Why the tokenizer at `path` is not the run's; empty: it is, and in `tokenizer`.
std::string refusal(FileSystem& files, const std::string& path, int64_t vocabulary,
                    std::unique_ptr<data::Tokenizer>& tokenizer) {
  data::TokenizerOptions options;
  options.begin = "model";
  std::unique_ptr<data::Tokenizer> opened;
  try {
    opened = data::open_tokenizer(files, path, options);
  } catch (const Error& error) {
    const bool refused = error.kind() == ErrorKind::usage || error.kind() == ErrorKind::corrupt ||
                         error.kind() == ErrorKind::unsupported;
    if (!refused) throw;
    return error.what();
  }
  if (opened->vocabulary_size() > vocabulary) {
    return fmt::format("'{}' has {} tokens, more than the model's vocabulary of {}", path,
                       opened->vocabulary_size(), vocabulary);
  }
  tokenizer = std::move(opened);
  return {};
}

}  // namespace

std::unique_ptr<data::Tokenizer> take_tokenizer(FileSystem& files, const std::string& source,
                                                int64_t vocabulary, const std::string& run_folder,
                                                std::vector<std::string>& notes) {
  std::vector<std::string> refusals;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string path = join_path(source, name);
    if (!files.exists(path)) continue;
    std::unique_ptr<data::Tokenizer> tokenizer;
    const std::string why = refusal(files, path, vocabulary, tokenizer);
    if (tokenizer != nullptr) {
      for (const std::string& other : refusals) {
        notes.push_back(fmt::format("the tokenizer is that of '{}': {}", path, other));
      }
      data::store_tokenizer(files, *tokenizer, tokenizer_path(run_folder));
      return tokenizer;
    }
    refusals.push_back(why);
  }
  if (refusals.empty()) {
    refusals.push_back(fmt::format("'{}' has neither tokenizer.json nor tokenizer.model", source));
  }
  for (const std::string& why : refusals) {
    notes.push_back(fmt::format(
        "the run has no tokenizer, which 'tutti generate' and 'tutti eval --tasks' need: {}", why));
  }
  return nullptr;
}

std::vector<data::OriginalFile> tokenizer_originals(FileSystem& files,
                                                    const std::string& run_folder,
                                                    std::vector<std::string>& notes) {
  const std::string path = tokenizer_path(run_folder);
  if (!files.exists(path)) return {};
  const auto tokenizer = data::load_tokenizer_file(files, path);
  std::vector<data::OriginalFile> originals = tokenizer->originals();
  if (originals.empty()) {
    notes.push_back(
        fmt::format("no tokenizer: the run's is of the kind '{}', which is Tutti's own and has no "
                    "form in transformers",
                    tokenizer->name()));
  }
  return originals;
}

}  // namespace tutti::train
