#include "tutti/checkpoint/store/piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/store/joint_save.h"
#include "tutti/checkpoint/store/shard_writer.h"

namespace tutti::checkpoint {
namespace {

std::string part_name(const Piece& piece) {
  return fmt::format("part-{:05}-of-{:05}.json", piece.rank, piece.ranks);
}

std::string part_path(const std::string& folder, const Piece& piece) {
  return join_path(pieces_path(folder, piece), part_name(piece));
}

// The whole of `text` as a number.
template <typename T>
std::optional<T> number_of(std::string_view text, int base) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Step and set of a folder's name; nullopt for any other name.
std::optional<Piece> parse_pieces_folder(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || name.size() - dash - 1 != 16) return std::nullopt;
  const std::optional<int64_t> step = parse_step_folder_name(name.substr(0, dash));
  const std::optional<uint64_t> set = number_of<uint64_t>(name.substr(dash + 1), 16);
  if (!step || !set) return std::nullopt;
  return Piece{.step = *step, .set = *set};
}

// Takes rank and ranks from a part's name; false for any other name.
bool parse_part_name(std::string_view name, Piece& piece) {
  const std::vector<std::string_view> words = split(name, '-');
  if (words.size() != 4 || words[0] != "part" || words[2] != "of") return false;
  const auto rank = number_of<int64_t>(words[1], 10);
  const auto ranks = number_of<int64_t>(words[3].substr(0, words[3].find('.')), 10);
  if (!rank || !ranks) return false;
  piece.rank = *rank;
  piece.ranks = *ranks;
  return part_name(piece) == name && piece.rank >= 0 && piece.rank < piece.ranks;
}

bool is_whole(FileSystem& files, const std::string& folder, const Piece& piece) {
  const std::string path = part_path(folder, piece);
  try {
    const Manifest part = parse_manifest(read_file(files, path), path, Coverage::part);
    return std::all_of(part.files.begin(), part.files.end(), [&](const FileRecord& file) {
      const std::string shard = join_path(pieces_path(folder, piece), file.name);
      return files.exists(shard) && files.size_bytes(shard) == file.bytes;
    });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    return false;
  }
}

void write_part(FileSystem& files, const std::string& path, const std::string& text) {
  write_durably(files, path + ".tmp", text);
  files.rename(path + ".tmp", path);
}

}  // namespace

std::string pieces_path(const std::string& folder, const Piece& piece) {
  return join_path(folder, step_folder_name(piece.step) + "-" + hash_hex(piece.set));
}

int64_t write_piece(FileSystem& files, const std::string& folder, const Piece& piece,
                    const std::vector<TensorSource>& tensors, const State& state,
                    const std::string& key_file) {
  const std::string path = pieces_path(folder, piece);
  std::vector<std::string> written;
  try {
    const std::shared_ptr<const SealKey> key = save_key(files, key_file);
    WriteOptions options;
    options.key_file = key_file;
    files.create_directories(path);
    Manifest part = write_shards(files, path, tensors, state, options, key.get(),
                                 rank_prefix(piece.rank), written);
    if (key) sign(part, *key);
    const std::string text = format_manifest(part);
    written.push_back(part_name(piece) + ".tmp");
    write_part(files, part_path(folder, piece), text);
    return part.total_bytes() + static_cast<int64_t>(text.size());
  } catch (...) {
    clean_up(files, path, false, written);
    throw;
  }
}

std::vector<Piece> list_pieces(FileSystem& files, const std::string& folder) {
  std::vector<Piece> pieces;
  if (!files.is_directory(folder)) return pieces;
  for (const DirectoryEntry& entry : files.list(folder)) {
    std::optional<Piece> piece = parse_pieces_folder(entry.name);
    if (!piece || !entry.is_directory) continue;
    for (const DirectoryEntry& file : files.list(join_path(folder, entry.name))) {
      if (parse_part_name(file.name, *piece) && is_whole(files, folder, *piece)) {
        pieces.push_back(*piece);
      }
    }
  }
  return pieces;
}

void remove_other_pieces(FileSystem& files, const std::string& folder, const Piece& kept) noexcept {
  try {
    const std::string name = base_name(pieces_path(folder, kept));
    for (const DirectoryEntry& entry : files.list(folder)) {
      if (entry.is_directory && entry.name != name)
        files.remove_tree(join_path(folder, entry.name));
    }
  } catch (const Error&) {
    return;  // the next set tries again
  }
}

PieceSource::PieceSource(FileSystem& files, const std::string& folder, const Piece& piece)
    : part_(read_file(files, part_path(folder, piece))) {
  bytes_ = part_bytes();
  const Manifest part = parse_manifest(part_, part_path(folder, piece), Coverage::part);
  for (const FileRecord& file : part.files) {
    shards_.push_back(files.map(join_path(pieces_path(folder, piece), file.name)));
    bytes_ += static_cast<int64_t>(shards_.back()->bytes().size());
  }
}

int64_t PieceSource::read(char* to, int64_t most) {
  int64_t done = 0;
  while (done < most && run_ <= shards_.size()) {
    const std::string_view run = run_ == 0 ? std::string_view(part_) : shards_[run_ - 1]->bytes();
    const int64_t size = std::min(most - done, static_cast<int64_t>(run.size()) - at_);
    std::copy_n(run.data() + at_, size, to + done);
    done += size;
    at_ += size;
    if (at_ == static_cast<int64_t>(run.size())) {
      ++run_;
      at_ = 0;
    }
  }
  return done;
}

PieceSink::PieceSink(FileSystem& files, const std::string& folder, const Piece& piece,
                     int64_t part_bytes)
    : files_(files), path_(part_path(folder, piece)), piece_(piece), part_bytes_(part_bytes) {
  files_.create_directories(parent_path(path_));
}

void PieceSink::append(const char* data, int64_t size) {
  while (size > 0) {
    int64_t taken = 0;
    if (const int64_t part = part_bytes_ - static_cast<int64_t>(part_.size()); part > 0) {
      taken = std::min(size, part);
      part_.append(data, static_cast<size_t>(taken));
      if (taken == part) shards_ = parse_manifest(part_, path_, Coverage::part).files;
    } else {
      while (missing_ == 0) next_shard();
      taken = std::min(size, missing_);
      file_->append(data, static_cast<size_t>(taken));
      missing_ -= taken;
    }
    data += taken;
    size -= taken;
  }
}

void PieceSink::next_shard() {
  if (file_) file_->close();
  if (next_ == shards_.size()) fail(ErrorKind::corrupt, "{}: more bytes than it names", path_);
  const FileRecord& shard = shards_[next_++];
  file_ = files_.create(join_path(parent_path(path_), shard.name));
  missing_ = shard.bytes;
}

void PieceSink::finish() {
  while (missing_ == 0 && next_ < shards_.size()) next_shard();  // empty ones
  if (missing_ > 0 || static_cast<int64_t>(part_.size()) != part_bytes_) {
    fail(ErrorKind::corrupt, "{}: fewer bytes than it names", path_);
  }
  if (file_) file_->close();
  write_part(files_, path_, part_);
}

std::string join_pieces(FileSystem& files, const std::string& folder, const Piece& piece) {
  Manifest manifest;
  std::shared_ptr<const SealKey> key;
  Piece each = piece;
  for (each.rank = 0; each.rank < piece.ranks; ++each.rank) {
    const std::string path = part_path(folder, each);
    const std::string text = read_file(files, path);
    Manifest part = parse_manifest(text, path, Coverage::part);
    if (part.seal && !key) key = find_seal_key(files, *part.seal, path);
    if (part.seal) check_signature(text, *key, path);
    if (each.rank == 0) {
      manifest = std::move(part);
    } else {
      add_part(manifest, part, path);
    }
  }
  bool committed = false;
  FolderBefore before;
  commit_manifest(files, pieces_path(folder, piece), manifest, key.get(), before, committed);
  return pieces_path(folder, piece);
}

}  // namespace tutti::checkpoint
