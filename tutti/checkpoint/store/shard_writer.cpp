#include "tutti/checkpoint/store/shard_writer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/object_store.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti_version.h"

namespace tutti::checkpoint {
namespace {

// One shard: the tensors in it, in the order of the caller.
using Shard = std::vector<const TensorSource*>;

// A file holds one slice of a tensor, so the second slices of all tensors begin another one.
std::vector<Shard> split_shards(const std::vector<TensorSource>& tensors, int64_t max_bytes) {
  std::vector<Shard> rounds(1);
  std::map<std::string, size_t> slices;
  for (const TensorSource& tensor : tensors) {
    const size_t round = slices[tensor.name]++;
    rounds.resize(std::max(rounds.size(), round + 1));
    rounds[round].push_back(&tensor);
  }
  std::vector<Shard> shards;
  for (const Shard& round : rounds) {
    int64_t bytes = 0;
    shards.emplace_back();
    for (const TensorSource* tensor : round) {
      const int64_t size = tensor_bytes(*tensor);
      if (!shards.back().empty() && bytes + size > max_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().push_back(tensor);
      bytes += size;
    }
  }
  return shards;
}

// A name that no file in the folder has: a checkpoint of the same step that is being replaced
// keeps its shards until the new manifest takes effect.
std::string shard_name(FileSystem& files, const std::string& path, const std::string& prefix,
                       size_t index, size_t count, bool sealed) {
  for (int revision = 0;; ++revision) {
    std::string name = fmt::format("{}shard-{:05}-of-{:05}{}.{}", prefix, index, count,
                                   revision == 0 ? "" : fmt::format(".r{}", revision),
                                   sealed ? "sealed" : "safetensors");
    if (!files.exists(join_path(path, name))) return name;
  }
}

// In a store no two saves write the same objects: an upload of a process that was given up may
// still be completed.
std::string own_prefix(FileSystem& files, const std::string& path) {
  if (object_store(files, path) == nullptr) return {};
  std::random_device chance;
  return fmt::format("{:08x}-", static_cast<uint32_t>(chance()));
}

// Appends to a file, seals every chunk of it where there is a key, and checksums it on the way.
class ChunkedFile {
 public:
  ChunkedFile(FileSystem& files, const std::string& path, int64_t piece_bytes, const SealKey* key,
              FileRecord& record)
      : file_(files.create(path)), piece_bytes_(piece_bytes), record_(record) {
    if (key == nullptr) return;
    record_.salt = random_salt();
    seal_.emplace(*key, record_.salt);
    piece_.reserve(static_cast<size_t>(piece_bytes));
  }

  void append(const void* data, int64_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const int64_t part = std::min(size, piece_bytes_ - in_piece_);
      if (seal_) {
        piece_.append(next, static_cast<size_t>(part));
      } else {
        store(next, static_cast<size_t>(part));
      }
      in_piece_ += part;
      record_.content_bytes += part;
      if (in_piece_ == piece_bytes_) finish_chunk();
      next += part;
      size -= part;
    }
  }

  void finish() {
    if (in_piece_ > 0) finish_chunk();
    file_->sync();
    file_->close();
  }

 private:
  void store(const char* data, size_t size) {
    hasher_.update(data, size);
    file_->append(data, size);
    record_.bytes += static_cast<int64_t>(size);
  }

  void finish_chunk() {
    if (seal_) {
      sealed_.resize(piece_.size() + static_cast<size_t>(kSealBytes));
      seal_->seal(static_cast<int64_t>(record_.chunks.size()), piece_, sealed_.data());
      store(sealed_.data(), sealed_.size());
      piece_.clear();
    }
    record_.chunks.push_back(hasher_.digest());
    hasher_ = Hasher();
    in_piece_ = 0;
  }

  std::unique_ptr<WritableFile> file_;
  const int64_t piece_bytes_;
  FileRecord& record_;
  std::optional<ShardSeal> seal_;
  Hasher hasher_;
  int64_t in_piece_ = 0;
  std::string piece_;   // what a chunk will seal
  std::string sealed_;  // the chunk
};

void append_tensor(ChunkedFile& out, const TensorSource& source, int64_t bytes) {
  if (!source.stream) return out.append(source.data, bytes);
  int64_t appended = 0;
  source.stream([&](const void* data, int64_t size) {
    out.append(data, size);
    appended += size;
  });
  TUTTI_CHECK(appended == bytes, "tensor {}: {} bytes streamed, not {}", source.name, appended,
              bytes);
}

void write_shard(FileSystem& files, const std::string& path, const Shard& shard, const SealKey* key,
                 Manifest& manifest, std::vector<TensorRecord*>& records, FileRecord& file) {
  std::vector<SafetensorsTensor> entries;
  std::map<std::string, size_t> position;
  for (size_t i = 0; i < shard.size(); ++i) {
    entries.push_back({shard[i]->name, shard[i]->dtype, shard[i]->shape, 0, 0});
    position[shard[i]->name] = i;
  }
  const SafetensorsLayout layout = layout_safetensors(std::move(entries), {{"format", "pt"}});
  ChunkedFile out(files, join_path(path, file.name), manifest.piece_bytes(), key, file);
  out.append(layout.header.data(), static_cast<int64_t>(layout.header.size()));
  for (const SafetensorsTensor& tensor : layout.tensors) {
    const size_t i = position.at(tensor.name);
    const TensorSource& source = *shard[i];
    append_tensor(out, source, tensor.end - tensor.begin);
    Slice slice;
    slice.file = static_cast<int64_t>(&file - manifest.files.data());
    slice.begin = tensor.begin;
    slice.end = tensor.end;
    slice.offset =
        source.global_shape.empty() ? std::vector<int64_t>(source.shape.size(), 0) : source.offset;
    slice.shape = source.shape;
    records[i]->slices.push_back(std::move(slice));
  }
  out.finish();
}

// That another process, which took this one for dead, has not removed what it uploaded. Returns
// what else is there.
std::vector<std::string> check_uploaded(FileSystem& files, const std::string& path,
                                        const Manifest& manifest) {
  std::map<std::string, int64_t> there;
  for (const DirectoryEntry& entry : files.list(path)) {
    if (!entry.is_directory && entry.name != kManifestName) there[entry.name] = entry.size_bytes;
  }
  for (const FileRecord& file : manifest.files) {
    const auto found = there.find(file.name);
    if (found == there.end() || found->second != file.bytes) {
      fail(ErrorKind::peer, "{}: another process has removed it before the checkpoint was complete",
           join_path(path, file.name));
    }
    there.erase(found);
  }
  std::vector<std::string> others;
  for (const auto& [name, bytes] : there) others.push_back(name);
  return others;
}

int64_t publish_manifest(ObjectStore& store, FileSystem& files, const std::string& path,
                         const Manifest& manifest, const std::string& text, FolderBefore& before,
                         bool& committed) {
  before.others = check_uploaded(files, path, manifest);
  store.publish(join_path(path, kManifestName), text, before.version, committed);
  // Removed between the look and the request, the manifest names what is not there.
  try {
    check_uploaded(files, path, manifest);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::peer) throw;
  }
  return static_cast<int64_t>(text.size());
}

bool has_valid_manifest(FileSystem& files, const std::string& path) {
  const std::string manifest = join_path(path, kManifestName);
  if (!files.exists(manifest)) return false;
  try {
    parse_manifest(read_file(files, manifest), manifest);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    return false;
  }
}

}  // namespace

void begin_folder(FileSystem& files, const std::string& path, FolderBefore& before) {
  if (ObjectStore* store = object_store(files, path); store != nullptr) {
    before.version = store->version(join_path(path, kManifestName));
    if (!before.version.empty())
      has_valid_manifest(files, path);  // a newer format's is not replaced
    return;
  }
  before.replace = has_valid_manifest(files, path);
  if (!before.replace) files.remove_tree(path);
  create_durable_directories(files, path);
}

void create_durable_directories(FileSystem& files, const std::string& path) {
  files.create_directories(path);
  for (std::string at = path; parent_path(at) != at;) {
    at = parent_path(at);
    try {
      files.sync_directory(at);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::permission) throw;
      return;  // a folder of the system, older than this run
    }
  }
}

Manifest write_shards(FileSystem& files, const std::string& path,
                      const std::vector<TensorSource>& tensors, const State& state,
                      const WriteOptions& options, const SealKey* key, const std::string& prefix,
                      std::vector<std::string>& written) {
  Manifest manifest;
  manifest.state = state;
  manifest.tutti_version = TUTTI_VERSION;
  manifest.created = format_utc(wall_seconds());
  manifest.chunk_bytes = options.chunk_bytes;
  if (key != nullptr) manifest.seal = {key->id(), files.resolve(options.key_file)};

  std::map<std::string, size_t> index;
  for (const TensorSource& tensor : tensors) {
    const std::vector<int64_t>& shape =
        tensor.global_shape.empty() ? tensor.shape : tensor.global_shape;
    const auto [at, added] = index.emplace(tensor.name, manifest.tensors.size());
    if (added) manifest.tensors.push_back({tensor.name, tensor.dtype, shape, {}});
    const TensorRecord& record = manifest.tensors[at->second];
    TUTTI_CHECK(record.dtype == tensor.dtype && record.shape == shape,
                "slices of tensor {} disagree about its type or shape", tensor.name);
  }
  const std::vector<Shard> shards = split_shards(tensors, options.max_shard_bytes);
  manifest.files.resize(shards.size());
  const std::string own = own_prefix(files, path) + prefix;
  for (size_t i = 0; i < shards.size(); ++i) {
    FileRecord& file = manifest.files[i];
    file.name = shard_name(files, path, own, i, shards.size(), key != nullptr);
    written.push_back(file.name);
    std::vector<TensorRecord*> records;
    for (const TensorSource* tensor : shards[i]) {
      records.push_back(&manifest.tensors[index.at(tensor->name)]);
    }
    write_shard(files, path, shards[i], key, manifest, records, file);
  }
  files.sync_directory(path);
  return manifest;
}

void write_durably(FileSystem& files, const std::string& path, const std::string& text) {
  const auto file = files.create(path);
  file->append(text.data(), text.size());
  file->sync();
  file->close();
}

void write_appearing(FileSystem& files, const std::string& path, const std::string& text) {
  if (object_store(files, path) != nullptr) return write_durably(files, path, text);
  write_durably(files, path + ".tmp", text);
  files.rename(path + ".tmp", path);
}

int64_t commit_manifest(FileSystem& files, const std::string& path, Manifest& manifest,
                        const SealKey* key, FolderBefore& before, bool& committed) {
  const std::string manifest_path = join_path(path, kManifestName);
  const std::string temporary_path = join_path(path, kManifestTemporaryName);
  if (key != nullptr) sign(manifest, *key);
  const std::string text = format_manifest(manifest);
  parse_manifest(text, manifest_path);  // what cannot be read back is not committed
  if (ObjectStore* store = object_store(files, path); store != nullptr) {
    return publish_manifest(*store, files, path, manifest, text, before, committed);
  }
  write_durably(files, temporary_path, text);
  files.rename(temporary_path, manifest_path);
  committed = true;
  files.sync_directory(path);
  return static_cast<int64_t>(text.size());
}

void clean_up(FileSystem& files, const std::string& path, bool whole_folder,
              const std::vector<std::string>& written) noexcept {
  try {
    if (whole_folder) files.remove_tree(path);
    const bool is_store = object_store(files, path) != nullptr;  // which need not be asked before
    for (const std::string& name : written) {
      const std::string file = join_path(path, name);
      if (is_store || files.exists(file)) files.remove_file(file);
    }
  } catch (const Error&) {
    return;
  }
}

void remove_replaced(FileSystem& files, const std::string& path, const Manifest& manifest,
                     const FolderBefore& before) noexcept {
  std::set<std::string> named = {kManifestName};
  for (const FileRecord& file : manifest.files) named.insert(file.name);
  try {
    std::vector<std::string> names = before.others;
    if (object_store(files, path) == nullptr) {
      for (const DirectoryEntry& entry : files.list(path)) {
        if (!entry.is_directory) names.push_back(entry.name);
      }
    }
    for (const std::string& name : names) {
      if (named.count(name) == 0) files.remove_file(join_path(path, name));
    }
  } catch (const Error&) {
    return;
  }
}

}  // namespace tutti::checkpoint
