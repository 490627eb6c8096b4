#include "tutti/checkpoint/store/retention.h"

#include <algorithm>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/object_store.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"

namespace tutti::checkpoint {

void remove_checkpoint(FileSystem& files, const std::string& path) {
  const std::string manifest = join_path(path, kManifestName);
  if (files.exists(manifest)) {
    files.remove_file(manifest);
    files.sync_directory(path);
  }
  files.remove_tree(path);
  files.sync_directory(parent_path(path));
}

namespace {

// Those into step folders that are not there yet are in no list of files.
std::optional<Error> end_uploads(FileSystem& files, const std::string& folder) {
  try {
    if (ObjectStore* store = object_store(files, folder)) store->end_uploads(folder);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Whether no save has been committed since the listing: what it commits is under names of its own.
bool is_as_listed(FileSystem& files, const CheckpointInfo& listed) {
  const std::string path = join_path(listed.path, kManifestName);
  if (!files.exists(path)) return true;
  if (listed.is_unfinished) return false;
  const std::vector<FileRecord> named = parse_manifest(read_file(files, path), path).files;
  return std::all_of(named.begin(), named.end(), [&](const FileRecord& file) {
    return std::find(listed.files.begin(), listed.files.end(), file.name) != listed.files.end();
  });
}

// False: it stays.
bool remove_listed(FileSystem& files, const CheckpointInfo& listed) {
  if (object_store(files, listed.path) == nullptr) {
    remove_checkpoint(files, listed.path);
    return true;
  }
  if (!is_as_listed(files, listed)) return false;
  if (!listed.is_unfinished) files.remove_file(join_path(listed.path, kManifestName));
  for (const std::string& name : listed.files) {
    if (name != kManifestName) files.remove_file(join_path(listed.path, name));
  }
  return true;
}

}  // namespace

std::vector<std::string> remove_unfinished(FileSystem& files, const std::string& folder) {
  const std::optional<Error> refused = end_uploads(files, folder);
  std::vector<std::string> removed;
  for (const CheckpointInfo& info : list_checkpoints(files, folder)) {
    if (info.is_unfinished && remove_listed(files, info)) removed.push_back(info.path);
  }
  if (refused) throw Error(*refused);
  return removed;
}

std::vector<std::string> apply_retention(FileSystem& files, const std::string& folder,
                                         const Retention& retention, int64_t newest_step) {
  end_uploads(files, folder);
  std::vector<CheckpointInfo> valid;
  std::vector<CheckpointInfo> to_remove;
  for (CheckpointInfo& info : list_checkpoints(files, folder)) {
    if (info.is_unfinished) {
      to_remove.push_back(std::move(info));
    } else if (info.valid && info.step <= newest_step) {
      valid.push_back(std::move(info));
    }
  }
  const auto best = std::min_element(valid.begin(), valid.end(), [](const auto& a, const auto& b) {
    return a.validation_loss && (!b.validation_loss || *a.validation_loss < *b.validation_loss);
  });
  const auto count = static_cast<int64_t>(valid.size());
  const int64_t beyond = retention.keep_last > 0 ? count - retention.keep_last : 0;
  for (int64_t i = 0; i < beyond; ++i) {
    const CheckpointInfo& info = valid[static_cast<size_t>(i)];
    const bool keep = retention.keep_best && info.validation_loss && info.path == best->path;
    if (!keep) to_remove.push_back(info);
  }
  std::vector<std::string> removed;
  for (const CheckpointInfo& info : to_remove) {
    if (remove_listed(files, info)) removed.push_back(info.path);
  }
  return removed;
}

}  // namespace tutti::checkpoint
