#include "tutti/data/corpus_meta.h"

#include "tutti/base/error.h"
#include "tutti/data/corpus_format.h"

namespace tutti::data {
namespace {

constexpr const char* kFormat = "tutti-corpus";
constexpr int64_t kVersion = 1;

}  // namespace

Json corpus_meta_json(const CorpusMeta& meta) {
  Json value;
  value["format"] = kFormat;
  value["version"] = kVersion;
  value["created"] = meta.created;
  value["tokenizer"] = meta.tokenizer;
  value["vocabulary_size"] = meta.vocabulary_size;
  value["dtype"] = meta.dtype;
  value["documents"] = meta.documents;
  value["tokens"] = meta.tokens;
  value["bin_bytes"] = meta.bin_bytes;
  value["bin_xxh3"] = meta.bin_xxh3;
  value["text_bytes"] = meta.text_bytes;
  value["sources"] = meta.sources;
  value["files"] = meta.files;
  value["source_bytes"] = meta.source_bytes;
  value["split"] = {{"part", meta.part},
                    {"method", meta.split_method},
                    {"share", meta.split_share},
                    {"seed", meta.split_seed}};
  value["skipped"] = Json::object();
  for (const auto& [reason, count] : meta.skipped) value["skipped"][reason] = count;
  if (!meta.licence.empty()) value["licence"] = meta.licence;
  if (!meta.data_class.empty()) value["data_class"] = meta.data_class;
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
  meta.vocabulary_size = json_get<int64_t>(value, "vocabulary_size", origin);
  meta.dtype = json_get<std::string>(value, "dtype", origin);
  meta.documents = json_get<int64_t>(value, "documents", origin);
  meta.tokens = json_get<int64_t>(value, "tokens", origin);
  meta.bin_bytes = json_get<int64_t>(value, "bin_bytes", origin);
  meta.bin_xxh3 = json_get<std::string>(value, "bin_xxh3", origin);
  meta.text_bytes = json_get<int64_t>(value, "text_bytes", origin);
  meta.sources = json_get<std::vector<std::string>>(value, "sources", origin);
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
  if (value.contains("licence")) meta.licence = json_get<std::string>(value, "licence", origin);
  if (value.contains("data_class")) {
    meta.data_class = json_get<std::string>(value, "data_class", origin);
  }
  return meta;
}

CorpusMeta load_corpus_meta(FileSystem& files, const std::string& prefix) {
  const std::string path = corpus_paths(prefix).meta;
  return corpus_meta_from_json(parse_json(read_file(files, path), path), path);
}

}  // namespace tutti::data
