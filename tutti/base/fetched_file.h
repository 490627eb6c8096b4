// An object of a store as a MappedFile: what has been fetched of it lies in an unnamed local file,
// which is mapped, so that the system may write it out instead of keeping it in memory.
//
// bytes() spans the whole object; what has not been fetched reads as zero. So map_on_demand() is
// for code that calls fetch() for what it reads; FileSystem::map() fetches everything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/object_store.h"

namespace tutti {

class FetchedFile final : public MappedFile {
 public:
  // `folder` is made where it is missing. Throws no_space, io and permission naming it.
  FetchedFile(std::unique_ptr<RangedFile> object, const std::string& folder);
  ~FetchedFile() override;
  FetchedFile(const FetchedFile&) = delete;
  FetchedFile& operator=(const FetchedFile&) = delete;

  std::string_view bytes() const override { return {static_cast<const char*>(data_), size_}; }
  // Throws what the store throws, and no_space when the local disk is full.
  void fetch(int64_t offset, int64_t size) const;
  // Gives the local space back; the bytes have to be fetched again.
  void not_needed(size_t offset, size_t size) const override;

 private:
  std::unique_ptr<RangedFile> object_;
  std::string folder_;
  int file_ = -1;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// The object behind `path` with nothing fetched yet, or an ordinary file mapped as ever.
std::unique_ptr<MappedFile> map_on_demand(FileSystem& files, const std::string& path);

// A part of a file that is needed.
struct FetchRange {
  const MappedFile* file = nullptr;
  int64_t offset = 0;
  int64_t size = 0;
};

// Fetches the ranges that are of FetchedFiles, several at once; returns when all are there.
void fetch(const std::vector<FetchRange>& ranges);

bool is_fetched(const MappedFile& file);  // of a store, and so in need of fetch()

}  // namespace tutti
