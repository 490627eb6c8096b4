#include "tutti/data/tokenizers/tokenizer_source.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/data/tokenizers/hf_tokenizer.h"
#include "tutti/data/tokenizers/sentencepiece_tokenizer.h"

namespace tutti::data {
namespace {

bool is_stored_form(FileSystem& files, const std::string& path) {
  const auto file = files.map(path);
  const std::string_view head = file->bytes().substr(0, 200);
  return head.find("\"tutti-tokenizer\"") != std::string_view::npos;
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(FileSystem& files, const std::string& name,
                                          const TokenizerOptions& options) {
  const bool defaults = !options.special && options.end.empty() && options.begin.empty();
  const auto need_defaults = [&] {
    if (defaults) return;
    fail(ErrorKind::usage,
         "the tokenizer '{}' is complete: --special, --eos and --bos go with a tokenizer.json of "
         "Hugging Face's kind or a SentencePiece model",
         name);
  };
  if (name == "byte") {
    need_defaults();
    return std::make_unique<ByteTokenizer>();
  }
  if (ends_with(name, ".model")) return open_sentencepiece(files, name, options);
  if (ends_with(name, ".json")) {
    if (!is_stored_form(files, name)) return open_hf_tokenizer(files, name, options);
    need_defaults();
    return load_tokenizer_file(files, name);
  }
  if (files.is_directory(name)) {
    for (const char* file : {"tokenizer.json", "tokenizer.model"}) {
      const std::string path = join_path(name, file);
      if (files.exists(path)) return open_tokenizer(files, path, options);
    }
    fail(ErrorKind::usage, "the folder '{}' has neither tokenizer.json nor tokenizer.model", name);
  }
  fail(ErrorKind::usage,
       "unknown tokenizer '{}'; choose byte, char, a tokenizer.json, a SentencePiece .model, or "
       "a folder with one of them",
       name);
}

}  // namespace tutti::data
