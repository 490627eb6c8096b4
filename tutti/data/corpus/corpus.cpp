#include "tutti/data/corpus/corpus.h"

#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/fetched_file.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/corpus/require_corpus.h"

namespace tutti::data {
namespace {

template <typename T>
T load(const char* array, int64_t index = 0) {
  T value;
  std::memcpy(&value, array + index * static_cast<int64_t>(sizeof(T)), sizeof value);
  return value;
}

template <typename T>
void copy_tokens(const char* bytes, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): i8 is a number here, not a character.
    out[i] = static_cast<int32_t>(load<T>(bytes, i));
  }
}

}  // namespace

bool corpus_exists(FileSystem& files, const std::string& prefix) {
  const CorpusPaths paths = corpus_paths(prefix);
  return files.exists(paths.bin) && files.exists(paths.idx);
}

Corpus::Corpus(FileSystem& files, const std::string& prefix, const CorpusOptions& options)
    : prefix_(prefix) {
  require_corpus(files, prefix);
  const CorpusPaths paths = corpus_paths(prefix);
  idx_ = files.map(paths.idx);
  ObjectStore* store = options.by_pieces ? object_store(files, prefix) : nullptr;
  if (store != nullptr) {
    bin_size_bytes_ = files.size_bytes(paths.bin);
  } else {
    bin_ = options.on_demand ? map_on_demand(files, paths.bin) : files.map(paths.bin);
    is_fetched_ = options.on_demand && is_fetched(*bin_);
    bin_size_bytes_ = static_cast<int64_t>(bin_->bytes().size());
  }
  read_header();
  tokens_ = check_sequences();
  check_documents();
  if (tokens_ == 0) {
    fail(ErrorKind::corrupt, "corpus '{}' is empty: '{}' holds no tokens", prefix, paths.bin);
  }
  if (store != nullptr) {
    open_pieces(files, *store, options.cache);
    return;
  }
  if (options.checksums && !is_fetched_ && files.exists(paths.checksums)) {
    checksums_ =
        std::make_unique<const CorpusChecksums>(files, paths, bin_->bytes(), idx_->bytes());
  }
}

void Corpus::open_pieces(FileSystem& files, ObjectStore& store, const CacheOptions& options) {
  const CorpusPaths paths = corpus_paths(prefix_);
  if (!files.exists(paths.checksums)) {
    fail(
        ErrorKind::not_found,
        "corpus '{}' has no checksums, which a corpus in an object store is read by: a run records "
        "'{}' where it may write there; or prepare the corpus again",
        prefix_, paths.checksums);
  }
  checksums_ =
      std::make_unique<const CorpusChecksums>(files, paths, bin_size_bytes_, idx_->bytes());
  CacheOptions cache = options;
  if (cache.folder.empty()) {
    cache.folder = join_path(parent_path(store.spool_folder()), "corpus-pieces");
  }
  pieces_ = std::make_unique<PieceCache>(store.open_ranged(paths.bin), *checksums_, cache,
                                         base_name(prefix_));
}

std::string_view Corpus::bin_bytes() const {
  if (bin_ != nullptr && !is_fetched_) return bin_->bytes();
  fail(ErrorKind::unsupported, "'{}' is fetched as it is read: its bytes are not all at hand",
       corpus_paths(prefix_).bin);
}

int64_t Corpus::fetched_bytes() const { return pieces_ ? pieces_->fetched_bytes() : 0; }

void Corpus::read_header() {
  const std::string path = corpus_paths(prefix_).idx;
  const std::string_view idx = idx_->bytes();
  const auto size = static_cast<int64_t>(idx.size());
  if (idx.substr(0, sizeof kIndexMagic) !=
      std::string_view(kIndexMagic, sizeof kIndexMagic).substr(0, idx.size())) {
    fail(ErrorKind::corrupt,
         "'{}' is not the index of a corpus: it starts with \"{}\" instead of \"MMIDIDX\"", path,
         printable(idx.substr(0, sizeof kIndexMagic)));
  }
  if (size < kIndexHeaderBytes) {
    fail(ErrorKind::corrupt, "'{}' is truncated: {} bytes, while its header has {}", path, size,
         kIndexHeaderBytes);
  }
  const auto version = load<uint64_t>(idx.data() + 9);
  if (version != kIndexVersion) {
    fail(ErrorKind::unsupported, "'{}' has version {}; this program reads version {}", path,
         version, kIndexVersion);
  }
  const auto code = load<uint8_t>(idx.data() + 17);
  const auto dtype = index_dtype(code);
  if (!dtype) {
    fail(ErrorKind::corrupt, "'{}' has element type {}, which the format does not define (1..8)",
         path, code);
  }
  if (*dtype == DType::f32 || *dtype == DType::f64) {
    fail(ErrorKind::unsupported, "'{}' holds {} elements; tokens are integers", path,
         dtype_name(*dtype));
  }
  dtype_ = *dtype;
  const auto sequences = load<uint64_t>(idx.data() + 18);
  const auto entries = load<uint64_t>(idx.data() + 26);
  // Every entry takes 8 bytes or more, so larger counts are wrong, and the sums below are safe.
  const auto most = static_cast<uint64_t>(size / 8);
  const auto needed = sequences > most || entries > most
                          ? INT64_MAX
                          : kIndexHeaderBytes + static_cast<int64_t>(12 * sequences + 8 * entries);
  if (needed > size) {
    fail(ErrorKind::corrupt,
         "'{}' is truncated: {} bytes are too few for the {} sequences and {} document entries "
         "that its header announces",
         path, size, sequences, entries);
  }
  sequences_ = static_cast<int64_t>(sequences);
  document_entries_ = static_cast<int64_t>(entries);
  has_modes_ = sequences_ > 0 && size == needed + sequences_;
  if (size != needed && !has_modes_) {
    fail(ErrorKind::corrupt, "'{}' has {} bytes after its last array; its header announces {}",
         path, size - needed, needed);
  }
  lengths_ = idx.data() + kIndexHeaderBytes;
  offsets_ = lengths_ + 4 * sequences_;
  documents_ = offsets_ + 8 * sequences_;
}

int64_t Corpus::check_sequences() const {
  const CorpusPaths paths = corpus_paths(prefix_);
  const int64_t bin_bytes = bin_size_bytes_;
  int64_t expected = 0;
  for (int64_t s = 0; s < sequences_; ++s) {
    const auto length = load<int32_t>(lengths_, s);
    const auto offset = load<int64_t>(offsets_, s);
    if (length < 0) {
      fail(ErrorKind::corrupt, "'{}': sequence {} has the length {}", paths.idx, s, length);
    }
    if (offset != expected) {
      fail(ErrorKind::corrupt,
           "'{}': sequence {} starts at byte {} of .bin, while the one before it ends at byte {}",
           paths.idx, s, offset, expected);
    }
    expected += length * dtype_bytes(dtype_);
    if (expected > bin_bytes) {
      fail(ErrorKind::corrupt,
           "'{}' is truncated: it has {} bytes, but sequence {} of {} ends at byte {}", paths.bin,
           bin_bytes, s, sequences_, expected);
    }
  }
  if (expected != bin_bytes) {
    fail(ErrorKind::corrupt,
         "'{}' has {} bytes, but its index '{}' describes only {}: they do not match", paths.bin,
         bin_bytes, paths.idx, expected);
  }
  return expected / dtype_bytes(dtype_);
}

void Corpus::check_documents() const {
  const std::string path = corpus_paths(prefix_).idx;
  if (document_entries_ < 1) {
    fail(ErrorKind::corrupt, "'{}' has no document indices; at least the leading 0 is needed",
         path);
  }
  int64_t previous = 0;
  for (int64_t d = 0; d < document_entries_; ++d) {
    const auto first = load<int64_t>(documents_, d);
    if ((d == 0 && first != 0) || first < previous || first > sequences_) {
      fail(ErrorKind::corrupt,
           "'{}': document entry {} is {}; entries start with 0, do not fall, and reach at most "
           "the {} sequences",
           path, d, first, sequences_);
    }
    previous = first;
  }
  if (previous != sequences_) {
    fail(ErrorKind::corrupt, "'{}': documents end at sequence {} of {}", path, previous,
         sequences_);
  }
}

int64_t Corpus::sequence_first(int64_t sequence) const {
  if (sequence == sequences_) return tokens_;
  TUTTI_CHECK(sequence >= 0 && sequence < sequences_, "sequence {} of {}", sequence, sequences_);
  return load<int64_t>(offsets_, sequence) / dtype_bytes(dtype_);
}

int64_t Corpus::sequence_tokens(int64_t sequence) const {
  TUTTI_CHECK(sequence >= 0 && sequence < sequences_, "sequence {} of {}", sequence, sequences_);
  return load<int32_t>(lengths_, sequence);
}

int64_t Corpus::document_first(int64_t document) const {
  TUTTI_CHECK(document >= 0 && document < document_entries_, "document {} of {}", document,
              documents());
  return load<int64_t>(documents_, document);
}

Corpus::TokenRange Corpus::document_range(int64_t document) const {
  const int64_t first = sequence_first(document_first(document));
  return {first, sequence_first(document_first(document + 1)) - first};
}

void Corpus::read(int64_t first, int64_t count, int32_t* out) const {
  TUTTI_CHECK(first >= 0 && count >= 0 && count <= tokens_ - first,
              "tokens [{}, {} + {}) of {} in corpus {}", first, first, count, tokens_, prefix_);
  const int64_t width = dtype_bytes(dtype_);
  std::string fetched;
  const char* bytes = nullptr;
  if (pieces_) {
    fetched.resize(static_cast<size_t>(count * width));
    pieces_->read(first * width, (first + count) * width, fetched.data());
    bytes = fetched.data();
  } else {
    if (is_fetched_) fetch({{bin_.get(), first * width, count * width}});
    if (checksums_) checksums_->check(first * width, (first + count) * width);
    bytes = bin_->bytes().data() + first * width;
  }
  switch (dtype_) {
    case DType::u8: return copy_tokens<uint8_t>(bytes, count, out);
    case DType::i8: return copy_tokens<int8_t>(bytes, count, out);
    case DType::i16: return copy_tokens<int16_t>(bytes, count, out);
    case DType::u16: return copy_tokens<uint16_t>(bytes, count, out);
    case DType::i32: return copy_tokens<int32_t>(bytes, count, out);
    default: break;
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto token = load<int64_t>(bytes, i);
    if (token < 0 || token > INT32_MAX) {
      fail(ErrorKind::corrupt, "'{}': token {} has the id {}, beyond 31 bits",
           corpus_paths(prefix_).bin, first + i, token);
    }
    out[i] = static_cast<int32_t>(token);
  }
}

void Corpus::will_need(int64_t first, int64_t count) const {
  const int64_t width = dtype_bytes(dtype_);
  if (pieces_) return pieces_->will_need(first * width, (first + count) * width);
  bin_->will_need(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
}

}  // namespace tutti::data
