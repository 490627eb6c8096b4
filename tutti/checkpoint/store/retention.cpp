#include "tutti/checkpoint/store/retention.h"

#include <algorithm>

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
void end_uploads(FileSystem& files, const std::string& folder) {
  if (ObjectStore* store = object_store(files, folder); store != nullptr) {
    store->end_uploads(folder);
  }
}

}  // namespace

std::vector<std::string> remove_unfinished(FileSystem& files, const std::string& folder) {
  end_uploads(files, folder);
  std::vector<std::string> removed;
  for (const CheckpointInfo& info : list_checkpoints(files, folder)) {
    if (!info.is_unfinished) continue;
    remove_checkpoint(files, info.path);
    removed.push_back(info.path);
  }
  return removed;
}

std::vector<std::string> apply_retention(FileSystem& files, const std::string& folder,
                                         const Retention& retention, int64_t newest_step) {
  end_uploads(files, folder);
  std::vector<CheckpointInfo> valid;
  std::vector<std::string> to_remove;
  for (CheckpointInfo& info : list_checkpoints(files, folder)) {
    if (info.is_unfinished) {
      to_remove.push_back(info.path);
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
    if (!keep) to_remove.push_back(info.path);
  }
  for (const std::string& path : to_remove) remove_checkpoint(files, path);
  return to_remove;
}

}  // namespace tutti::checkpoint
