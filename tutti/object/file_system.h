// The file system of a command: the machine's files, and objects where a path begins with s3://.
//
// Behind FileSystem, for objects:
//   create            an upload; the object appears, whole, when it is closed (object_writer.h)
//   map               the whole object, fetched; of large ones into a local file (fetched_file.h)
//   exists, size_bytes, list, is_directory, remove_file, remove_tree
//                     a folder is what keys with a common beginning share; it exists while one
//                     does, so create_directories() has nothing to do
//   sync_directory    nothing: an answered request is durable, and seen by all who ask later
// Not behind it: open_append() and rename() throw unsupported, since an object is never changed.
// What is more than files, such as conditional writes, is in base/object_store.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "tutti/base/file.h"
#include "tutti/base/object_store.h"
#include "tutti/object/client.h"
#include "tutti/object/object_writer.h"

namespace tutti::object {

struct StoreOptions {
  std::shared_ptr<Transport> transport;  // null: libcurl
  RetryOptions retry;
  WriteLimits write;
  Environment environment;  // empty: the process's
  std::string spool;        // empty: of find_cache_folder()
};

// $TUTTI_CACHE, else tutti in $XDG_CACHE_HOME or in .cache of $HOME, else in /tmp.
std::string find_cache_folder(const Environment& environment);

class RoutedFileSystem final : public FileSystem, public ObjectStore {
 public:
  explicit RoutedFileSystem(FileSystem& files, StoreOptions options = {});

  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> open_append(const std::string& path) override;
  std::unique_ptr<MappedFile> map(const std::string& path) override;
  bool exists(const std::string& path) override;
  bool is_directory(const std::string& path) override;
  bool is_stream(const std::string& path) override;
  int64_t size_bytes(const std::string& path) override;
  std::vector<DirectoryEntry> list(const std::string& path) override;
  void create_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  void sync_directory(const std::string& path) override;
  std::string resolve(const std::string& path) override;

  bool holds(std::string_view path) const override;
  std::unique_ptr<RangedFile> open_ranged(const std::string& path) override;
  std::string version(const std::string& path) override;
  void publish(const std::string& path, std::string_view bytes, const std::string& version,
               bool& may_be_there) override;
  int64_t end_uploads(const std::string& folder) override;
  int64_t end_uploads_of(const std::string& path) override;
  std::string spool_folder() override;

 private:
  const Client& client();  // made at the first use: most commands need no credentials

  FileSystem& files_;
  const StoreOptions options_;
  std::mutex mutex_;
  std::unique_ptr<Client> client_;
};

// Of this process, over posix_file_system().
FileSystem& file_system();

}  // namespace tutti::object
