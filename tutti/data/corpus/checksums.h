// PREFIX.checksums: XXH3 of every piece of PREFIX.bin and of PREFIX.idx, so that damage is an error
// when it is read and not a token that is trained on.
//
//   offset  type     content
//   0       8 bytes  "TUTSUMS\0"
//   8       u32      version, 1
//   12      u32      bytes of a piece, 65,536
//   16      u64      bytes of PREFIX.bin
//   24      u64      bytes of PREFIX.idx
//   32      u64      XXH3 (seed 0) of PREFIX.idx
//   40      u64      XXH3 of the array that follows, then the 40 bytes above
//   48      u64[n]   XXH3 of each piece of PREFIX.bin; the last may be shorter
//
// All numbers are little-endian. CorpusWriter writes the file with the corpus. A corpus that was
// made elsewhere or by an earlier version has none until record_checksums() makes it, at first use.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/hash.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {

// A random window costs the hash of one or two pieces, microseconds, and no more of the disk than
// the kernel reads around a page.
inline constexpr int64_t kChecksumPieceBytes = int64_t{1} << 16;

// The recorded checksums of an opened corpus. Thread-safe: const.
class CorpusChecksums {
 public:
  // `bin` and `idx` are the bytes of the two files and outlive this object. Throws corrupt when
  // PREFIX.checksums is damaged or of other files, or PREFIX.idx is not the recorded one.
  CorpusChecksums(FileSystem& files, const CorpusPaths& paths, std::string_view bin,
                  std::string_view idx);
  // Of a .bin of so many bytes that come piece by piece: for holds() and fail_damaged() only.
  CorpusChecksums(FileSystem& files, const CorpusPaths& paths, int64_t bin_bytes,
                  std::string_view idx);

  int64_t pieces() const { return pieces_; }
  int64_t piece_bytes(int64_t index) const;
  // Whether `bytes` are those recorded of piece `index`.
  bool holds(int64_t index, std::string_view bytes) const;
  [[noreturn]] void fail_damaged(int64_t index) const;
  uint64_t hash() const;  // of all that is recorded of .bin: the same corpus has the same

  // Compares the pieces that hold bytes [begin, end) of .bin, each of them once in the life of this
  // object. Throws corrupt naming the file and the range of the first that differs.
  void check(int64_t begin, int64_t end) const;

  // All damaged bytes of .bin, whole pieces, neighbours joined: [first, last], ascending.
  struct ByteRange {
    int64_t first = 0, last = 0;
  };
  std::vector<ByteRange> damaged() const;

 private:
  std::string_view piece(int64_t index) const;
  bool holds(int64_t index) const { return holds(index, piece(index)); }

  std::string bin_path_, path_;
  std::string_view bin_;
  int64_t bin_bytes_ = 0;
  std::unique_ptr<MappedFile> file_;
  const char* hashes_ = nullptr;  // u64[pieces]
  int64_t pieces_ = 0;
  mutable std::vector<std::atomic<uint64_t>> compared_;  // a bit per piece: it holds
};

// Makes the content of PREFIX.checksums from a .bin that arrives in parts.
class ChecksumBuilder {
 public:
  void update(const void* data, size_t bytes);
  std::string finish(int64_t idx_bytes, uint64_t idx_xxh3);

 private:
  void end_piece();

  Hasher piece_;
  size_t piece_bytes_ = 0;
  int64_t bin_bytes_ = 0;
  std::vector<uint64_t> hashes_;
};

// Reads the corpus through and writes its PREFIX.checksums; does nothing where there is one. What
// PREFIX.meta.json records of .bin must hold. `progress` gets bytes done and in all; what it throws
// ends the work. Of several processes that do this at once each writes the same bytes. Throws
// what Corpus throws, corrupt when .bin is not the recorded one, and permission, no_space or io
// when the file cannot be written; then nothing is left of it.
void record_checksums(FileSystem& files, const std::string& prefix,
                      const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace tutti::data
