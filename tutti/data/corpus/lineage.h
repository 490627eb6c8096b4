// Where a corpus came from, source by source: what prepare() counts while it writes and records in
// PREFIX.meta.json (meta.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/corpus/meta.h"
#include "tutti/data/prepare/encode.h"
#include "tutti/data/prepare/sources.h"

namespace tutti::data {

// What a user states about a source.
struct SourceNote {
  std::string licence, data_class;
  std::string json_key;  // of the text in its JSON lines; empty: that of all sources
};

struct SourceList {
  std::vector<std::string> paths;
  std::vector<SourceNote> notes;  // one per path
};

// A YAML list of sources, each a path or a mapping {path, licence, data_class, key, weight};
// `license` is accepted too, `weight` is read by others and passed over here. A relative path
// counts from the folder of the file. Throws usage naming file, line and key.
SourceList load_source_list(FileSystem& files, const std::string& path);

// Of one part, per source.
struct SourceCount {
  int64_t documents = 0, tokens = 0;
};

class Lineage {
 public:
  explicit Lineage(const std::vector<SourceFile>& files);  // which must outlive this

  // Takes notice of a block that is written to parts: `counts[part]` holds one entry per source.
  void add(const EncodedBlock& block, const std::vector<std::vector<SourceCount>*>& counts);

  // One entry per path, as are notes and counts.
  std::vector<SourceMeta> describe(const std::vector<std::string>& paths,
                                   const std::vector<SourceNote>& notes,
                                   const std::vector<SourceCount>& counts) const;

 private:
  const std::vector<SourceFile>& files_;
  std::vector<std::optional<uint64_t>> hashes_;  // of files that were read
};

}  // namespace tutti::data
