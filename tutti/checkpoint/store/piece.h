// One rank's part of a checkpoint of one step, in the memory of a host (a folder on tmpfs) instead
// of the run folder. A piece is shards and a part of a manifest that names them, both as in a joint
// save; the pieces of all ranks together are a checkpoint. They are sealed and signed where the
// run's checkpoints are: others may read that memory, and it may be paged out.
//
//   FOLDER/step-00000012-SET/rank-00003-shard-00000-of-00001.safetensors
//   FOLDER/step-00000012-SET/part-00003-of-00004.json      (last: then the piece is whole)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/snapshot.h"

namespace tutti::checkpoint {

struct Piece {
  int64_t step = 0;
  uint64_t set = 0;  // pieces of one set belong together: the same ranks wrote them in one session
  int64_t rank = 0;
  int64_t ranks = 1;

  bool operator==(const Piece&) const = default;
  bool operator<(const Piece& other) const {
    return std::tie(step, set, rank, ranks) <
           std::tie(other.step, other.set, other.rank, other.ranks);
  }
};

// The folder of the pieces that belong with `piece`.
std::string pieces_path(const std::string& folder, const Piece& piece);

// Writes this rank's piece from its tensors, sealed with the key in `key_file` unless that is
// empty. Returns its size. Throws as write_checkpoint; what was written is then removed.
int64_t write_piece(FileSystem& files, const std::string& folder, const Piece& piece,
                    const std::vector<TensorSource>& tensors, const State& state,
                    const std::string& key_file = {});

// The whole pieces in `folder`, in order; none when it does not exist. Sizes of files are compared,
// contents are not.
std::vector<Piece> list_pieces(FileSystem& files, const std::string& folder);

// Removes all folders of pieces in `folder` but that of the pieces that belong with `kept`. Best
// effort.
void remove_other_pieces(FileSystem& files, const std::string& folder, const Piece& kept) noexcept;

// A piece as one run of bytes, to be sent: the part of the manifest, then the shards.
class PieceSource {
 public:
  PieceSource(FileSystem& files, const std::string& folder, const Piece& piece);

  int64_t part_bytes() const { return static_cast<int64_t>(part_.size()); }
  int64_t bytes() const { return bytes_; }  // with the part
  // The next bytes, fewer at the end.
  int64_t read(char* to, int64_t most);

 private:
  std::string part_;
  std::vector<std::unique_ptr<MappedFile>> shards_;
  int64_t bytes_ = 0;
  size_t run_ = 0;  // 0: the part, then the shards
  int64_t at_ = 0;  // in it
};

// Where these bytes become a piece again, in another folder.
class PieceSink {
 public:
  PieceSink(FileSystem& files, const std::string& folder, const Piece& piece, int64_t part_bytes);

  // Throws corrupt where the part of the manifest does not hold, and as the file system.
  void append(const char* data, int64_t size);
  // All bytes have come: from now on the piece is there. Throws corrupt when some have not.
  void finish();

 private:
  void next_shard();

  FileSystem& files_;
  const std::string path_;
  const Piece piece_;
  const int64_t part_bytes_;
  std::string part_;
  std::vector<FileRecord> shards_;
  size_t next_ = 0;
  int64_t missing_ = 0;  // of the shard being written
  std::unique_ptr<WritableFile> file_;
};

// Makes a checkpoint of the pieces that belong with `piece`, all of which are in `folder`: writes
// manifest.json beside them. Returns its path, for Reader. Sealed ones need their key
// (checkpoint/seal/seal.h); throws corrupt where a part is not signed with it.
std::string join_pieces(FileSystem& files, const std::string& folder, const Piece& piece);

}  // namespace tutti::checkpoint
