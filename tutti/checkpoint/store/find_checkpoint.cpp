// Which checkpoints there are (reader.h).
#include <algorithm>
#include <map>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/object_store.h"
#include "tutti/checkpoint/store/reader.h"

namespace tutti::checkpoint {
namespace {

bool is_damage(const Error& error) {
  return error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::not_found;
}

}  // namespace

std::vector<CheckpointInfo> list_checkpoints(FileSystem& files, const std::string& folder) {
  std::vector<CheckpointInfo> found;
  if (!files.exists(folder)) return found;
  for (const DirectoryEntry& entry : files.list(folder)) {
    const std::optional<int64_t> step = parse_step_folder_name(entry.name);
    if (!step || !entry.is_directory) continue;
    CheckpointInfo info;
    info.step = *step;
    info.path = join_path(folder, entry.name);
    std::map<std::string, int64_t> sizes;
    try {
      for (const DirectoryEntry& file : files.list(info.path)) {
        if (!file.is_directory) info.files.push_back(file.name);
        sizes[file.name] = file.size_bytes;
        info.bytes += file.size_bytes;
      }
      const std::string manifest_path = join_path(info.path, kManifestName);
      if (sizes.count(kManifestName) == 0) {
        info.is_unfinished = !files.exists(manifest_path);  // not only unreadable for now
        fail(ErrorKind::corrupt, "{} is missing: the save did not finish", manifest_path);
      }
      const Manifest manifest = parse_manifest(read_file(files, manifest_path), manifest_path);
      info.validation_loss = manifest.state.validation_loss;
      info.created = manifest.created;
      if (manifest.state.step != info.step) {
        fail(ErrorKind::corrupt, "{}: it was saved at step {}", manifest_path, manifest.state.step);
      }
      for (const FileRecord& file : manifest.files) {
        const auto size = sizes.find(file.name);
        if (size == sizes.end()) {
          fail(ErrorKind::corrupt, "{} is missing", join_path(info.path, file.name));
        }
        if (size->second != file.bytes) {
          fail(ErrorKind::corrupt, "{}: {} bytes instead of {}", join_path(info.path, file.name),
               size->second, file.bytes);
        }
      }
      info.valid = true;
    } catch (const Error& error) {
      const bool is_unsupported = error.kind() == ErrorKind::unsupported;  // of a newer version
      if (!is_damage(error) && !is_unsupported && object_store(files, folder) != nullptr) throw;
      info.problem = error.what();
    }
    found.push_back(std::move(info));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::optional<Reader> newest_valid(
    FileSystem& files, const std::string& folder,
    const std::function<void(const std::string& path, const std::string& reason)>& skipped,
    const ParallelFor& parallel, const TensorFilter& needed) {
  std::vector<CheckpointInfo> newest_first = list_checkpoints(files, folder);
  std::reverse(newest_first.begin(), newest_first.end());
  const bool is_store = object_store(files, folder) != nullptr;
  for (const CheckpointInfo& info : newest_first) {
    try {
      Reader reader(files, info.path, parallel);
      if (!info.valid) fail(ErrorKind::corrupt, "{}", info.problem);
      reader.verify_contents(is_store ? needed : TensorFilter());
      return reader;
    } catch (const Error& error) {
      if (!is_damage(error)) throw;
      if (skipped) skipped(info.path, error.what());
    }
  }
  return std::nullopt;
}

}  // namespace tutti::checkpoint
