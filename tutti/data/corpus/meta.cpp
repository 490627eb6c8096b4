#include "tutti/data/corpus/meta.h"

#include "tutti/base/error.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {
namespace {

constexpr const char* kFormat = "tutti-corpus";
constexpr int64_t kVersion = 1;

void put_words(Json& object, const std::string& licence, const std::string& data_class) {
  if (!licence.empty()) object["licence"] = licence;
  if (!data_class.empty()) object["data_class"] = data_class;
}

void get_words(const Json& object, const std::string& origin, std::string& licence,
               std::string& data_class) {
  if (object.contains("licence")) licence = json_get<std::string>(object, "licence", origin);
  if (object.contains("data_class")) {
    data_class = json_get<std::string>(object, "data_class", origin);
  }
}

SourceMeta source_meta_from_json(const Json& value, const std::string& origin) {
  SourceMeta source;
  if (value.is_string()) {  // earlier corpora state the path alone
    source.path = value.get<std::string>();
    return source;
  }
  source.path = json_get<std::string>(value, "path", origin);
  source.files = json_get<int64_t>(value, "files", origin);
  source.bytes = json_get<int64_t>(value, "bytes", origin);
  source.documents = json_get<int64_t>(value, "documents", origin);
  source.tokens = json_get<int64_t>(value, "tokens", origin);
  source.hash = json_get<std::string>(value, "hash", origin);
  get_words(value, origin, source.licence, source.data_class);
  return source;
}

}  // namespace

Json source_meta_json(const SourceMeta& source) {
  Json value = {{"path", source.path},           {"files", source.files},   {"bytes", source.bytes},
                {"documents", source.documents}, {"tokens", source.tokens}, {"hash", source.hash}};
  put_words(value, source.licence, source.data_class);
  return value;
}

Json corpus_meta_json(const CorpusMeta& meta) {
  Json value;
  value["format"] = kFormat;
  value["version"] = kVersion;
  value["created"] = meta.created;
  value["tokenizer"] = meta.tokenizer;
  if (!meta.tokenizer_hash.empty()) value["tokenizer_hash"] = meta.tokenizer_hash;
  value["vocabulary_size"] = meta.vocabulary_size;
  value["dtype"] = meta.dtype;
  value["documents"] = meta.documents;
  value["tokens"] = meta.tokens;
  value["bin_bytes"] = meta.bin_bytes;
  value["bin_xxh3"] = meta.bin_xxh3;
  value["text_bytes"] = meta.text_bytes;
  value["sources"] = Json::array();
  for (const SourceMeta& source : meta.sources) {
    value["sources"].push_back(source_meta_json(source));
  }
  value["files"] = meta.files;
  value["source_bytes"] = meta.source_bytes;
  value["split"] = {{"part", meta.part},
                    {"method", meta.split_method},
                    {"share", meta.split_share},
                    {"seed", meta.split_seed}};
  value["skipped"] = Json::object();
  for (const auto& [reason, count] : meta.skipped) value["skipped"][reason] = count;
  put_words(value, meta.licence, meta.data_class);
  return value;
}

CorpusMeta corpus_meta_from_json(const Json& value, const std::string& origin) {
  const auto format = json_get<std::string>(value, "format", origin);
  const auto version = json_get<int64_t>(value, "version", origin);
  if (format != kFormat) {
    fail(ErrorKind::corrupt, "'{}': format is '{}' instead of '{}'", origin, format, kFormat);
  }
  if (version != kVersion) {
    fail(ErrorKind::unsupported, "'{}' has version {}; this program reads version {}", origin,
         version, kVersion);
  }
  CorpusMeta meta;
  meta.created = json_get<std::string>(value, "created", origin);
  meta.tokenizer = json_get<std::string>(value, "tokenizer", origin);
  if (value.contains("tokenizer_hash")) {
    meta.tokenizer_hash = json_get<std::string>(value, "tokenizer_hash", origin);
  }
  meta.vocabulary_size = json_get<int64_t>(value, "vocabulary_size", origin);
  meta.dtype = json_get<std::string>(value, "dtype", origin);
  meta.documents = json_get<int64_t>(value, "documents", origin);
  meta.tokens = json_get<int64_t>(value, "tokens", origin);
  meta.bin_bytes = json_get<int64_t>(value, "bin_bytes", origin);
  meta.bin_xxh3 = json_get<std::string>(value, "bin_xxh3", origin);
  meta.text_bytes = json_get<int64_t>(value, "text_bytes", origin);
  for (const Json& source : json_get<std::vector<Json>>(value, "sources", origin)) {
    meta.sources.push_back(source_meta_from_json(source, origin));
  }
  meta.files = json_get<int64_t>(value, "files", origin);
  meta.source_bytes = json_get<int64_t>(value, "source_bytes", origin);
  const auto split = json_get<Json>(value, "split", origin);
  meta.part = json_get<std::string>(split, "part", origin);
  meta.split_method = json_get<std::string>(split, "method", origin);
  meta.split_share = json_get<double>(split, "share", origin);
  meta.split_seed = json_get<uint64_t>(split, "seed", origin);
  const auto skipped = json_get<Json>(value, "skipped", origin);
  for (const auto& item : skipped.items()) {
    meta.skipped.emplace_back(item.key(), json_get<int64_t>(skipped, item.key().c_str(), origin));
  }
  get_words(value, origin, meta.licence, meta.data_class);
  return meta;
}

CorpusMeta load_corpus_meta(FileSystem& files, const std::string& prefix) {
  const std::string path = corpus_paths(prefix).meta;
  return corpus_meta_from_json(parse_json(read_file(files, path), path), path);
}

}  // namespace tutti::data
