#include "tutti/base/file.h"

#include "tutti/base/error.h"
#include "tutti/base/object_store.h"

namespace tutti {

void MappedFile::will_need(size_t /*offset*/, size_t /*size*/) const {}
void MappedFile::not_needed(size_t /*offset*/, size_t /*size*/) const {}

std::string read_file(FileSystem& files, const std::string& path) {
  return std::string(files.map(path)->bytes());
}

void write_file_atomic(FileSystem& files, const std::string& path, std::string_view bytes) {
  if (files.is_stream(path)) {
    const auto stream = files.open_append(path);
    stream->append(bytes.data(), bytes.size());
    stream->close();
    return;
  }
  if (object_store(files, path) != nullptr) {  // an object appears when it is closed
    const auto file = files.create(path);
    file->append(bytes.data(), bytes.size());
    file->close();
    return;
  }
  const std::string temporary = path + ".tmp";
  try {
    const auto file = files.create(temporary);
    file->append(bytes.data(), bytes.size());
    file->sync();
    file->close();
    files.rename(temporary, path);
  } catch (const Error&) {
    try {
      if (files.exists(temporary)) files.remove_file(temporary);
    } catch (const Error&) {
      // The first error says more.
    }
    throw;
  }
  files.sync_directory(parent_path(path));
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  std::string path(folder);
  if (path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string parent_path(std::string_view path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string base_name(std::string_view path) {
  const size_t slash = path.find_last_of('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace tutti
