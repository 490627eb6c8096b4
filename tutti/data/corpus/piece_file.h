// A local file that holds some pieces of a corpus from an object store, at the offsets they have
// there. What is missing is a hole. Any number of processes may share it: which bytes are there is
// decided by the corpus' checksums alone, so a torn or missing piece is one that is fetched again.
//
// Files of one folder share a bound. A file that no process has open is removed when another needs
// its space.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::data {

class PieceFile {
 public:
  // Throws io or permission naming the file.
  PieceFile(const std::string& folder, const std::string& name, int64_t size_bytes);
  ~PieceFile();
  PieceFile(const PieceFile&) = delete;
  PieceFile& operator=(const PieceFile&) = delete;

  bool read(int64_t offset, int64_t size, char* out) const;          // false: cannot
  bool write(int64_t offset, int64_t size, const char* data) const;  // false: no space
  void drop(int64_t offset, int64_t size) const;

  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<Range> kept() const;  // that are no holes
  int64_t folder_bytes() const;     // on disk, of all such files in the folder
  // Removes files that no process has open, oldest first, until the folder holds at most so much.
  void remove_unused(int64_t bound_bytes) const;

 private:
  std::string folder_, path_;
  int file_ = -1;
};

}  // namespace tutti::data
