// A folder of Hugging Face's transformers, opened for reading: config.json, and either
// model.safetensors or the shards named in model.safetensors.index.json. Reads headers only; tensor
// bytes are mapped.
//
// Names in the index must be plain names of files in the folder. A symbolic link must point into
// the folder or, if the folder is a snapshot of the hub's cache (".../snapshots/REVISION"), into
// the cache's ".../blobs".
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {

inline constexpr const char* kHfConfig = "config.json";
inline constexpr const char* kHfSingle = "model.safetensors";
inline constexpr const char* kHfIndex = "model.safetensors.index.json";

// Files beside the weights that are copied with a model unchanged.
const std::vector<std::string>& hf_side_files();

class HfFolder {
 public:
  // Throws not_found if a file is missing, corrupt if a file is damaged or inconsistent (a damaged
  // header, a tensor in two shards, index and shards that disagree), usage for a config.json that
  // is not JSON and names that leave the folder, unsupported for pickled weights.
  HfFolder(FileSystem& files, std::string path);

  const std::string& path() const { return path_; }
  const Json& config() const { return config_; }
  std::string config_path() const;
  const std::vector<std::string>& notes() const { return notes_; }
  std::vector<std::string> side_files() const;  // those of hf_side_files() that exist

  int64_t tensor_count() const { return static_cast<int64_t>(tensors_.size()); }
  std::vector<std::string> tensor_names() const;
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  const SafetensorsTensor& tensor(const std::string& name) const;  // must exist
  const std::string& file_of(const std::string& name) const;       // path of its shard
  std::string_view bytes(const std::string& name) const;
  // A hint that bytes [begin, end) of a tensor were read and can be evicted from memory.
  void release(const std::string& name, int64_t begin, int64_t end) const;
  int64_t largest_file_bytes() const;

 private:
  struct Shard {
    std::string path;
    std::unique_ptr<MappedFile> map;
  };
  struct StoredTensor {
    size_t shard = 0;
    SafetensorsTensor tensor;
  };
  std::string checked_path(const std::string& name, std::string_view named_by) const;
  void open_shard(const std::string& name, std::string_view named_by);
  void open_index();
  [[noreturn]] void fail_without_weights() const;

  FileSystem& files_;
  std::string path_;
  Json config_;
  std::vector<Shard> shards_;
  std::map<std::string, StoredTensor> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace tutti::checkpoint
