#include "tutti/base/new_folder.h"

#include <utility>

#include "tutti/base/error.h"

namespace tutti {

NewFolder::NewFolder(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  const bool empty = files_.is_directory(path_) && files_.list(path_).empty();
  if (files_.exists(path_) && !empty) {
    fail(ErrorKind::usage, "--out: '{}' already exists; give another name or remove it", path_);
  }
  partial_ = path_ + ".partial";
  files_.remove_tree(partial_);  // of an earlier attempt that was killed
  files_.create_directories(partial_);
}

NewFolder::~NewFolder() {
  if (partial_.empty()) return;
  try {
    files_.remove_tree(partial_);
  } catch (const Error&) {
    return;  // the original failure is reported; this one is ignored
  }
}

void NewFolder::commit() {
  files_.sync_directory(partial_);
  files_.remove_tree(path_);  // empty
  files_.rename(partial_, path_);
  partial_.clear();
  files_.sync_directory(parent_path(path_));
}

}  // namespace tutti
