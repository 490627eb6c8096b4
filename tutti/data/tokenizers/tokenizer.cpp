#include "tutti/data/tokenizers/tokenizer.h"

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/data/tokenizers/char_tokenizer.h"
#include "tutti/data/tokenizers/hf_tokenizer.h"
#include "tutti/data/tokenizers/sentencepiece_tokenizer.h"

namespace tutti::data {
namespace {

constexpr const char* kTokenizerFormat = "tutti-tokenizer";
constexpr int64_t kTokenizerVersion = 1;
constexpr std::string_view kSuffix = ".json";

// The files that the stored form `value`, read from `path`, names.
std::vector<OriginalFile> load_originals(FileSystem& files, const Json& value,
                                         const std::string& path) {
  std::vector<OriginalFile> originals;
  for (const Json& entry : json_get<std::vector<Json>>(value, "files", path)) {
    const auto name = json_get<std::string>(entry, "name", path);
    const auto hash = json_get<std::string>(entry, "xxh3", path);
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
      fail(ErrorKind::corrupt, "'{}': files names '{}', which is not a file's name", path, name);
    }
    const std::string original = join_path(tokenizer_folder(path), name);
    originals.push_back({name, read_file(files, original)});
    const std::string found = hash_hex(hash_text(originals.back().bytes));
    if (found != hash) {
      fail(ErrorKind::corrupt, "'{}' is not the file that '{}' was stored with: XXH3 is {}, not {}",
           original, path, found, hash);
    }
  }
  if (originals.empty()) fail(ErrorKind::corrupt, "'{}': files is empty", path);
  return originals;
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::vector<int32_t> encode_start(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.begin_of_document();
  tokenizer.encode(text, ids);
  if (ids.empty() && tokenizer.end_of_document() != kNoToken) {
    ids.push_back(tokenizer.end_of_document());
  }
  return ids;
}

const std::vector<std::string>& tokenizer_names() {
  static const std::vector<std::string> names = {
      "byte", "char", "bpe", "unigram", "wordpiece", "wordlevel", "sentencepiece"};
  return names;
}

Json tokenizer_json(const Tokenizer& tokenizer) {
  Json value;
  value["format"] = kTokenizerFormat;
  value["version"] = kTokenizerVersion;
  value["name"] = tokenizer.name();
  value["vocabulary_size"] = tokenizer.vocabulary_size();
  const int32_t end = tokenizer.end_of_document();
  value["end_of_document"] = end == kNoToken ? Json(nullptr) : Json(end);
  tokenizer.describe(value);
  const std::vector<OriginalFile> originals = tokenizer.originals();
  if (!originals.empty()) value["files"] = Json::array();
  for (const OriginalFile& file : originals) {
    value["files"].push_back({{"name", file.name},
                              {"bytes", file.bytes.size()},
                              {"xxh3", hash_hex(hash_text(file.bytes))}});
  }
  return value;
}

std::string tokenizer_hash(const Tokenizer& tokenizer) {
  const std::vector<OriginalFile> originals = tokenizer.originals();
  return hash_hex(hash_text(originals.empty() ? dump_json(tokenizer_json(tokenizer))
                                              : originals.front().bytes));
}

Json tokenizer_identity(Json stored) {
  if (!stored.is_object()) return stored;
  const auto files = stored.find("files");
  if (files != stored.end() && files->is_array() && files->size() > 1) {
    *files = Json::array({(*files)[0]});
  }
  return stored;
}

std::unique_ptr<Tokenizer> tokenizer_from_json(FileSystem& files, const Json& value,
                                               const std::string& path) {
  const std::string& origin = path;
  const auto format = json_get<std::string>(value, "format", origin);
  if (format != kTokenizerFormat) {
    fail(ErrorKind::corrupt, "'{}': format is '{}' instead of '{}'", origin, format,
         kTokenizerFormat);
  }
  const auto version = json_get<int64_t>(value, "version", origin);
  if (version != kTokenizerVersion) {
    fail(ErrorKind::unsupported, "'{}' has version {}; this program reads version {}", origin,
         version, kTokenizerVersion);
  }
  const auto name = json_get<std::string>(value, "name", origin);
  std::unique_ptr<Tokenizer> tokenizer;
  if (name == "byte") {
    tokenizer = std::make_unique<ByteTokenizer>();
  } else if (name == "char") {
    tokenizer = char_tokenizer_from_json(value, origin);
  } else if (name == "bpe" || name == "unigram" || name == "wordpiece" || name == "wordlevel") {
    tokenizer = std::make_unique<HfTokenizer>(load_originals(files, value, path),
                                              control_tokens_from_json(value, path), path);
  } else if (name == "sentencepiece") {
    tokenizer = std::make_unique<SentencePieceTokenizer>(
        load_originals(files, value, path), control_tokens_from_json(value, path), path);
  } else {
    fail(ErrorKind::unsupported, "'{}': this program has no tokenizer '{}' (it has {})", origin,
         name, join(tokenizer_names(), ", "));
  }
  if (tokenizer->name() != name) {
    fail(ErrorKind::corrupt, "'{}': name is '{}', but the tokenizer next to it is '{}'", origin,
         name, tokenizer->name());
  }
  const auto size = json_get<int64_t>(value, "vocabulary_size", origin);
  if (size != tokenizer->vocabulary_size()) {
    fail(ErrorKind::corrupt, "'{}': vocabulary_size is {}, but this tokenizer '{}' has {} ids",
         origin, size, name, tokenizer->vocabulary_size());
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> load_tokenizer(FileSystem& files, const std::string& prefix) {
  const std::string path = corpus_paths(prefix).tokenizer;
  if (!files.exists(path)) {
    fail(ErrorKind::not_found,
         "corpus '{}' came without '{}', so its ids have no known meaning; prepare it with tutti, "
         "or put the file there",
         prefix, path);
  }
  return load_tokenizer_file(files, path);
}

std::unique_ptr<Tokenizer> load_tokenizer_file(FileSystem& files, const std::string& path) {
  return tokenizer_from_json(files, parse_json(read_file(files, path), path), path);
}

std::string tokenizer_folder(const std::string& path) {
  TUTTI_CHECK(ends_with(path, kSuffix), "a stored tokenizer is named '{}'", path);
  return path.substr(0, path.size() - kSuffix.size());
}

void store_tokenizer(FileSystem& files, const Tokenizer& tokenizer, const std::string& path) {
  const std::string folder = tokenizer_folder(path);
  files.remove_tree(folder);
  const std::vector<OriginalFile> originals = tokenizer.originals();
  if (!originals.empty()) files.create_directories(folder);
  for (const OriginalFile& file : originals) {
    write_file_atomic(files, join_path(folder, file.name), file.bytes);
  }
  write_file_atomic(files, path, tokenizer_json(tokenizer).dump(1) + "\n");
}

}  // namespace tutti::data
