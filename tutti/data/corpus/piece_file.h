// A local file that holds some pieces of a corpus from an object store, at the offsets they have
// there. What is missing is a hole. Any number of processes may share it: which bytes are there is
// decided by the corpus' checksums alone, so a torn or missing piece is one that is fetched again.
// For the same reason anyone may take pieces of any file away.
//
// Files of one folder share a bound, which those who write keep: usage() says how full the folder
// is, and take_unused() and take() give space of other files back. Where the folder's file system
// makes no holes in files, drop() and take() free nothing, and only files as a whole go.
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
  bool drop(int64_t offset, int64_t size) const;                     // false: cannot
  bool is_hole(int64_t offset) const;  // false where holes read as data

  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<Range> kept() const;  // that are no holes; empty where holes read as data

  struct Usage {
    int64_t folder_bytes = 0;   // on disk, of all such files in the folder
    int64_t own_bytes = 0;      // of this one
    std::string largest;        // path of the largest of the others; empty: there is none
    int64_t largest_bytes = 0;  // of that
  };
  Usage usage() const;
  // Takes at least `bytes` from files that no process has open, if they have so much: from the one
  // opened or written longest ago first, whole files where their file system makes no holes.
  // Returns what it took.
  int64_t take_unused(int64_t bytes) const;
  // Takes a piece of `piece_bytes` from the file `path`, this one or another, wherever it has one.
  // False: cannot, or it has none.
  static bool take(const std::string& path, int64_t piece_bytes);
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
  int file_ = -1;
};

}  // namespace tutti::data
