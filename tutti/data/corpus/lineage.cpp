#include "tutti/data/corpus/lineage.h"

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::data {
namespace {

constexpr const char* kWanted =
    "a list of sources: paths, or mappings such as {path: books, licence: CC0, data_class: public}";

}  // namespace

SourceList load_source_list(FileSystem& files, const std::string& path) {
  const YAML::Node list = spec::parse_yaml(read_file(files, path), path);
  if (!list.IsSequence() || list.size() == 0) {
    fail(ErrorKind::usage, "{}: this is not {}", path, kWanted);
  }
  SourceList sources;
  for (const YAML::Node& entry : list) {
    std::string source;
    SourceNote note;
    if (entry.IsScalar()) {
      source = entry.as<std::string>();
    } else {
      const int line = entry.Mark().line + 1;
      if (!entry.IsMap()) fail(ErrorKind::usage, "{}:{}: this is not {}", path, line, kWanted);
      spec::YamlMap map(entry, "", path);
      map.read_text("path", source);
      map.read_text("license", note.licence);
      map.read_text("licence", note.licence);
      map.read_text("data_class", note.data_class);
      map.read_text("key", note.json_key);
      map.has("weight");
      map.finish();
    }
    if (source.empty()) {
      fail(ErrorKind::usage, "{}:{}: a source lacks its path", path, entry.Mark().line + 1);
    }
    if (starts_with(source, "s3:")) {
      fail(ErrorKind::usage,
           "{}:{}: '{}' is in an object store; sources are local: copy it to this machine", path,
           entry.Mark().line + 1, source);
    }
    const bool absolute = source.front() == '/';
    sources.paths.push_back(absolute ? source : join_path(parent_path(path), source));
    sources.notes.push_back(note);
  }
  return sources;
}

Lineage::Lineage(const std::vector<SourceFile>& files) : files_(files), hashes_(files.size()) {}

void Lineage::add(const EncodedBlock& block, const std::vector<std::vector<SourceCount>*>& counts) {
  for (const EncodedSegment& segment : block.segments) {
    SourceCount& count = counts[segment.held_out ? 1 : 0]->at(files_[segment.file].source);
    count.documents += segment.ends_document ? 1 : 0;
    count.tokens += segment.tokens;
  }
  for (const auto& [file, hash] : block.hashes) hashes_[file] = hash;
}

std::vector<SourceMeta> Lineage::describe(const std::vector<std::string>& paths,
                                          const std::vector<SourceNote>& notes,
                                          const std::vector<SourceCount>& counts) const {
  TUTTI_CHECK(notes.size() == paths.size() && counts.size() == paths.size(),
              "{} notes and {} counts for {} sources", notes.size(), counts.size(), paths.size());
  std::vector<SourceMeta> sources(paths.size());
  std::vector<Hasher> folders(paths.size());
  for (size_t f = 0; f < files_.size(); ++f) {
    if (!hashes_[f]) continue;
    SourceMeta& source = sources[files_[f].source];
    ++source.files;
    source.bytes += files_[f].size_bytes;
    const std::string hash = hash_hex(*hashes_[f]);
    if (files_[f].named_directly) {
      source.hash = hash;
    } else {
      const std::string line = hash + " " + files_[f].name + "\n";
      folders[files_[f].source].update(line.data(), line.size());
    }
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    if (sources[i].hash.empty()) sources[i].hash = hash_hex(folders[i].digest());
    sources[i].path = paths[i];
    sources[i].documents = counts[i].documents;
    sources[i].tokens = counts[i].tokens;
    sources[i].licence = notes[i].licence;
    sources[i].data_class = notes[i].data_class;
  }
  return sources;
}

}  // namespace tutti::data
