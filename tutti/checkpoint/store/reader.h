// Finding and loading checkpoints. All returned data has verified checksums.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/opened_shard.h"
#include "tutti/checkpoint/store/parallel.h"

namespace tutti::checkpoint {

// Where a loaded tensor goes, or a box of it: contiguous row-major memory of this type and shape.
struct TensorTarget {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  void* data = nullptr;
  // For a box only: shape of the whole tensor, index of the box's first element in it.
  std::vector<int64_t> global_shape = {};
  std::vector<int64_t> offset = {};
};

using TensorFilter = std::function<bool(const std::string& name)>;

// One opened checkpoint. Loading is for one thread at a time; it uses `parallel` inside.
class Reader {
 public:
  // Reads the manifest, maps the shards, compares sizes and headers with the manifest. Of shards in
  // an object store only what is needed is fetched, once, chunk by chunk. Throws
  // corrupt naming the file and what is wrong; permission where a sealed checkpoint's key is not
  // found, or another one is (checkpoint/seal/seal.h).
  Reader(FileSystem& files, std::string path, ParallelFor parallel = parallel_threads);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  bool contains(const std::string& name) const { return index_.count(name) > 0; }
  const TensorRecord& tensor(const std::string& name) const;  // throws not_found

  // Copies the tensors out, reading no more of the files than they need; parameters stored as bf16
  // or f16 are widened where f32 is wanted (an import keeps the type of its files). Throws
  // not_found for a missing name, usage for another dtype or shape, corrupt when a checksum of a
  // chunk that is read does not hold (targets are then undefined).
  void load(const std::vector<TensorTarget>& targets);
  void load(const std::string& name, DType dtype, const std::vector<int64_t>& shape, void* data);

  // The bytes of a tensor in the mapped file, valid while the reader lives (of a sealed one: until
  // it is released), with checked checksums.
  // Throws unsupported when it is stored in several slices.
  std::string_view bytes(const std::string& name);

  // A hint that the tensor has been read and its part of the mapped files can leave memory.
  void release(const std::string& name);

  // Compares the checksums of all chunks, or of those that hold tensors that `needed` names; throws
  // corrupt at the first that does not hold.
  void verify_contents(const TensorFilter& needed = {});

 private:
  struct Chunk {
    int64_t file;
    int64_t index;
  };
  void check_headers();
  std::string_view contents(size_t file) const;
  void need(std::vector<Chunk>& chunks, int64_t file, int64_t begin, int64_t end) const;
  static std::vector<Chunk> without_repeats(std::vector<Chunk> chunks);
  void verify(const std::vector<Chunk>& chunks);
  // Of a plain file: its pages need not stay in this process's memory, only in the page cache.
  void leave_memory(size_t file, int64_t offset, int64_t size) const;

  std::string path_;
  ParallelFor parallel_;
  Manifest manifest_;
  std::map<std::string, size_t> index_;               // name -> position in manifest_.tensors
  std::vector<std::unique_ptr<MappedFile>> maps_;     // one per manifest_.files
  std::vector<std::unique_ptr<OpenedShard>> opened_;  // likewise; null: not sealed
  std::vector<std::vector<uint8_t>> verified_;  // [file][chunk]: checksum compared, and opened
};

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
  bool valid = false;   // manifest intact, files there with the right sizes; contents not read
  std::string problem;  // why not valid
  // It has no manifest: its save, or its removal, was interrupted.
  bool is_unfinished = false;
  std::vector<std::string> files;  // names of those in the folder
  int64_t bytes = 0;               // of all files in the folder
  std::optional<double> validation_loss;
  std::string created;
};

// The step folders of `folder` by ascending step; none when it does not exist. In an object store a
// request that fails says nothing about a checkpoint, and its Error is thrown.
std::vector<CheckpointInfo> list_checkpoints(FileSystem& files, const std::string& folder);

// The newest checkpoint whose every byte is as written, opened; nullopt when there is none.
// Damaged ones are passed to `skipped` with the reason. Other errors (no permission, a newer
// format) are thrown: to fall back in silence would repeat work that is there. In an object store,
// where all that is compared is fetched, it is the newest of which the tensors that are `needed`
// (all, where it is empty) are as written; the reader does not fetch them again.
std::optional<Reader> newest_valid(
    FileSystem& files, const std::string& folder,
    const std::function<void(const std::string& path, const std::string& reason)>& skipped,
    const ParallelFor& parallel = parallel_threads, const TensorFilter& needed = {});

}  // namespace tutti::checkpoint
