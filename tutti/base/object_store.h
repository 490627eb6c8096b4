// What a FileSystem offers where its paths lead to an object store (s3://BUCKET/KEY), beside files.
// An object appears whole when it is closed, or not at all, and cannot be appended to or renamed.
// Code that needs to know the difference asks object_store(); all other code sees a FileSystem.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/base/file.h"

namespace tutti {

// An object that is read by ranges. All functions may be called from any number of threads.
class RangedFile {
 public:
  virtual ~RangedFile() = default;
  virtual int64_t size_bytes() const = 0;
  // out = bytes [offset, offset + size), which lie in the object; all of them, or an Error. Throws
  // corrupt when the object was replaced since it was opened.
  virtual void read(int64_t offset, int64_t size, void* out) const = 0;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual bool holds(std::string_view path) const = 0;  // whether `path` leads there
  virtual std::unique_ptr<RangedFile> open_ranged(const std::string& path) = 0;

  // A name for what the object holds, another after every write; empty: there is no such object.
  virtual std::string version(const std::string& path) = 0;
  // Writes a small object by one conditional request, which takes effect while the object is of
  // `version` (empty: while there is none). So of all who saw a version one replaces it; the others
  // get peer. `may_be_there`: whether the object may hold these bytes, also after an error; false
  // when the store has certainly not taken them.
  virtual void publish(const std::string& path, std::string_view bytes, const std::string& version,
                       bool& may_be_there) = 0;

  // Ends uploads below `folder` that were begun and never closed; returns how many. To be called
  // while no other process writes there.
  virtual int64_t end_uploads(const std::string& folder) = 0;
  // The same of the object `path` alone.
  virtual int64_t end_uploads_of(const std::string& path) = 0;

  // A local folder for parts of objects while they are read (fetched_file.h).
  virtual std::string spool_folder() = 0;
};

// The store that `path` leads to; null: ordinary files.
ObjectStore* object_store(FileSystem& files, std::string_view path);

}  // namespace tutti
