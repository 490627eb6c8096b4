#include "tutti/data/corpus/checksums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/object_store.h"
#include "tutti/data/corpus/corpus.h"

namespace tutti::data {
namespace {

constexpr char kChecksumsMagic[8] = {'T', 'U', 'T', 'S', 'U', 'M', 'S', '\0'};
constexpr uint32_t kChecksumsVersion = 1;
constexpr int64_t kChecksummedBytes = 40;  // of the header
constexpr int64_t kChecksumsHeaderBytes = 48;

template <typename T>
void append_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T number_at(std::string_view bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

int64_t pieces_of(int64_t bytes) { return (bytes + kChecksumPieceBytes - 1) / kChecksumPieceBytes; }

uint64_t hash_of_table(std::string_view header, std::string_view hashes) {
  Hasher hasher;
  hasher.update(hashes.data(), hashes.size());
  hasher.update(header.data(), static_cast<size_t>(kChecksummedBytes));
  return hasher.digest();
}

std::string remedy(const std::string& path) {
  return fmt::format(
      "put a copy of the file back, or prepare the corpus again; if it was replaced on purpose, "
      "remove '{}'",
      path);
}

// The hash of .bin that was recorded when the corpus was prepared; empty when there is none. What
// cannot be read keeps no run from its data, here as elsewhere.
std::string recorded_hash(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return {};
  try {
    const Json meta = parse_json(read_file(files, path), path);
    return meta.is_object() ? json_get<std::string>(meta, "bin_xxh3", path) : std::string();
  } catch (const Error&) {
    return {};
  }
}

// A file that appears under its name when it is whole. Its temporary name is its own, so that
// several processes can write at once.
class AppearingFile {
 public:
  AppearingFile(FileSystem& files, std::string path)
      : files_(files),
        path_(std::move(path)),
        in_store_(object_store(files, path_) != nullptr),
        temporary_(in_store_ ? path_ : fmt::format("{}.{:08x}.tmp", path_, std::random_device{}())),
        file_(files.create(temporary_)) {}
  ~AppearingFile() {
    if (file_ == nullptr) return;
    file_.reset();
    if (in_store_) return;  // an object that is not closed is not there
    try {
      files_.remove_file(temporary_);
    } catch (const Error&) {
      // It stays, as after a crash, and is read by no one.
    }
  }
  AppearingFile(const AppearingFile&) = delete;
  AppearingFile& operator=(const AppearingFile&) = delete;

  void commit(std::string_view bytes) {
    file_->append(bytes.data(), bytes.size());
    file_->sync();
    file_->close();
    if (!in_store_) files_.rename(temporary_, path_);
    file_.reset();
    files_.sync_directory(parent_path(path_));
  }

 private:
  FileSystem& files_;
  const std::string path_;
  const bool in_store_;  // of objects
  const std::string temporary_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace

CorpusChecksums::CorpusChecksums(FileSystem& files, const CorpusPaths& paths, std::string_view bin,
                                 std::string_view idx)
    : CorpusChecksums(files, paths, static_cast<int64_t>(bin.size()), idx) {
  bin_ = bin;
  compared_ = std::vector<std::atomic<uint64_t>>(static_cast<size_t>(pieces_ + 63) / 64);
}

CorpusChecksums::CorpusChecksums(FileSystem& files, const CorpusPaths& paths, int64_t bin_bytes,
                                 std::string_view idx)
    : bin_path_(paths.bin), path_(paths.checksums), bin_bytes_(bin_bytes), file_(files.map(path_)) {
  const std::string_view bytes = file_->bytes();
  if (bytes.substr(0, sizeof kChecksumsMagic) !=
      std::string_view(kChecksumsMagic, sizeof kChecksumsMagic)) {
    fail(ErrorKind::corrupt, "'{}' does not hold checksums: it does not start with \"TUTSUMS\"",
         path_);
  }
  if (static_cast<int64_t>(bytes.size()) < kChecksumsHeaderBytes) {
    fail(ErrorKind::corrupt, "'{}' is truncated: {} bytes, while its header has {}", path_,
         bytes.size(), kChecksumsHeaderBytes);
  }
  if (const auto version = number_at<uint32_t>(bytes, 8); version != kChecksumsVersion) {
    fail(ErrorKind::unsupported, "'{}' has version {}; this program reads version {}", path_,
         version, kChecksumsVersion);
  }
  const std::string_view hashes = bytes.substr(static_cast<size_t>(kChecksumsHeaderBytes));
  if (hash_of_table(bytes, hashes) != number_at<uint64_t>(bytes, kChecksummedBytes)) {
    fail(ErrorKind::corrupt,
         "'{}' is damaged: its own checksum does not hold; remove it, and the next run records "
         "new checksums of the corpus",
         path_);
  }
  const auto piece_bytes = number_at<uint32_t>(bytes, 12);
  pieces_ = pieces_of(bin_bytes);
  if (piece_bytes != kChecksumPieceBytes ||
      number_at<uint64_t>(bytes, 16) != static_cast<uint64_t>(bin_bytes) ||
      number_at<uint64_t>(bytes, 24) != idx.size() ||
      hashes.size() != static_cast<size_t>(pieces_) * sizeof(uint64_t)) {
    fail(ErrorKind::corrupt,
         "'{}' is of another corpus: it describes {} bytes of '{}' and {} of '{}', which have {} "
         "and {}; {}",
         path_, number_at<uint64_t>(bytes, 16), paths.bin, number_at<uint64_t>(bytes, 24),
         paths.idx, bin_bytes, idx.size(), remedy(path_));
  }
  if (hash_bytes(idx.data(), idx.size()) != number_at<uint64_t>(bytes, 32)) {
    fail(ErrorKind::corrupt,
         "'{}' is damaged: its bytes 0 to {} are not those recorded in '{}'; {}", paths.idx,
         idx.size() - 1, path_, remedy(path_));
  }
  hashes_ = hashes.data();
}

int64_t CorpusChecksums::piece_bytes(int64_t index) const {
  return std::min(kChecksumPieceBytes, bin_bytes_ - index * kChecksumPieceBytes);
}

uint64_t CorpusChecksums::hash() const {
  return number_at<uint64_t>(file_->bytes(), kChecksummedBytes);
}

void CorpusChecksums::fail_damaged(int64_t index) const {
  const int64_t first = index * kChecksumPieceBytes;
  fail(ErrorKind::corrupt, "'{}' is damaged: its bytes {} to {} are not those recorded in '{}'; {}",
       bin_path_, first, first + piece_bytes(index) - 1, path_, remedy(path_));
}

std::string_view CorpusChecksums::piece(int64_t index) const {
  return bin_.substr(static_cast<size_t>(index * kChecksumPieceBytes),
                     static_cast<size_t>(kChecksumPieceBytes));
}

bool CorpusChecksums::holds(int64_t index, std::string_view bytes) const {
  uint64_t recorded = 0;
  std::memcpy(&recorded, hashes_ + index * static_cast<int64_t>(sizeof recorded), sizeof recorded);
  return hash_bytes(bytes.data(), bytes.size()) == recorded;
}

void CorpusChecksums::check(int64_t begin, int64_t end) const {
  if (begin >= end) return;
  for (int64_t i = begin / kChecksumPieceBytes; i <= (end - 1) / kChecksumPieceBytes; ++i) {
    std::atomic<uint64_t>& word = compared_[static_cast<size_t>(i) / 64];
    const uint64_t bit = uint64_t{1} << (static_cast<uint64_t>(i) % 64);
    if ((word.load(std::memory_order_relaxed) & bit) != 0) continue;
    if (!holds(i)) fail_damaged(i);
    word.fetch_or(bit, std::memory_order_relaxed);
  }
}

std::vector<CorpusChecksums::ByteRange> CorpusChecksums::damaged() const {
  std::vector<ByteRange> ranges;
  for (int64_t i = 0; i < pieces_; ++i) {
    if (holds(i)) continue;
    const int64_t first = i * kChecksumPieceBytes;
    const int64_t last = first + static_cast<int64_t>(piece(i).size()) - 1;
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = last;
    } else {
      ranges.push_back({first, last});
    }
  }
  return ranges;
}

void ChecksumBuilder::update(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  bin_bytes_ += static_cast<int64_t>(bytes);
  while (bytes > 0) {
    const size_t part = std::min(bytes, static_cast<size_t>(kChecksumPieceBytes) - piece_bytes_);
    piece_.update(next, part);
    piece_bytes_ += part;
    next += part;
    bytes -= part;
    if (piece_bytes_ == static_cast<size_t>(kChecksumPieceBytes)) end_piece();
  }
}

void ChecksumBuilder::end_piece() {
  hashes_.push_back(piece_.digest());
  piece_ = Hasher();
  piece_bytes_ = 0;
}

std::string ChecksumBuilder::finish(int64_t idx_bytes, uint64_t idx_xxh3) {
  if (piece_bytes_ > 0) end_piece();
  std::string out(kChecksumsMagic, sizeof kChecksumsMagic);
  append_number(out, kChecksumsVersion);
  append_number(out, static_cast<uint32_t>(kChecksumPieceBytes));
  append_number(out, static_cast<uint64_t>(bin_bytes_));
  append_number(out, static_cast<uint64_t>(idx_bytes));
  append_number(out, idx_xxh3);
  const std::string_view hashes(reinterpret_cast<const char*>(hashes_.data()),
                                hashes_.size() * sizeof(uint64_t));
  append_number(out, hash_of_table(out, hashes));
  out += hashes;
  return out;
}

void record_checksums(FileSystem& files, const std::string& prefix,
                      const std::function<void(int64_t, int64_t)>& progress) {
  const CorpusPaths paths = corpus_paths(prefix);
  if (files.exists(paths.checksums)) return;
  const Corpus corpus(files, prefix);
  AppearingFile file(files, paths.checksums);  // before the corpus is read, which may take minutes
  constexpr size_t kStep = size_t{8} << 20;
  const std::string_view bin = corpus.bin_bytes();
  const std::string_view idx = corpus.idx_bytes();
  ChecksumBuilder builder;
  Hasher whole;
  for (size_t at = 0; at < bin.size(); at += kStep) {
    const std::string_view part = bin.substr(at, kStep);
    builder.update(part.data(), part.size());
    whole.update(part.data(), part.size());
    if (progress)
      progress(static_cast<int64_t>(at + part.size()), static_cast<int64_t>(bin.size()));
  }
  const std::string recorded = recorded_hash(files, paths.meta);
  if (const std::string found = hash_hex(whole.digest()); !recorded.empty() && found != recorded) {
    fail(ErrorKind::corrupt,
         "'{}' is damaged: XXH3 of its bytes 0 to {} is {}, and '{}' records {}; put a copy of the "
         "file back, or prepare the corpus again",
         paths.bin, bin.size() - 1, found, paths.meta, recorded);
  }
  file.commit(builder.finish(static_cast<int64_t>(idx.size()), hash_bytes(idx.data(), idx.size())));
}

}  // namespace tutti::data
