#include "tutti/data/prepare/loss_mask.h"

#include <cstring>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {
namespace {

constexpr char kMagic[8] = {'T', 'U', 'T', 'M', 'A', 'S', 'K', '\0'};
constexpr uint32_t kMaskVersion = 1;
constexpr int64_t kHeaderBytes = 40;

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T load_at(std::string_view bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::string loss_mask_bytes(const std::vector<uint32_t>& masked, int64_t tokens) {
  std::string out(kMagic, sizeof kMagic);
  append(out, kMaskVersion);
  append(out, uint32_t{0});
  append(out, static_cast<uint64_t>(masked.size()));
  append(out, static_cast<uint64_t>(tokens));
  const size_t bytes = masked.size() * sizeof(uint32_t);
  append(out, hash_bytes(masked.data(), bytes));
  out.append(reinterpret_cast<const char*>(masked.data()), bytes);
  return out;
}

LossMask::LossMask(FileSystem& files, const Corpus& corpus) : documents_(corpus.documents()) {
  const std::string path = corpus_paths(corpus.prefix()).mask;
  file_ = files.map(path);
  const std::string_view bytes = file_->bytes();
  if (bytes.substr(0, sizeof kMagic) != std::string_view(kMagic, sizeof kMagic)) {
    fail(ErrorKind::corrupt, "'{}' is not a loss mask: it does not start with \"TUTMASK\"", path);
  }
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kHeaderBytes) {
    fail(ErrorKind::corrupt, "'{}' is truncated: {} bytes, while its header has {}", path, size,
         kHeaderBytes);
  }
  const auto version = load_at<uint32_t>(bytes, 8);
  if (version != kMaskVersion) {
    fail(ErrorKind::unsupported, "'{}' has version {}; this program reads version {}", path,
         version, kMaskVersion);
  }
  const auto documents = load_at<uint64_t>(bytes, 16);
  const auto tokens = load_at<uint64_t>(bytes, 24);
  if (documents != static_cast<uint64_t>(documents_) ||
      tokens != static_cast<uint64_t>(corpus.tokens())) {
    fail(ErrorKind::corrupt,
         "'{}' masks {} documents of {} tokens, but corpus '{}' has {} of {}: they do not match; "
         "prepare the corpus again",
         path, documents, tokens, corpus.prefix(), documents_, corpus.tokens());
  }
  if (size != kHeaderBytes + 4 * documents_) {
    fail(ErrorKind::corrupt, "'{}' has {} bytes instead of {} for {} documents", path, size,
         kHeaderBytes + 4 * documents_, documents_);
  }
  counts_ = bytes.data() + kHeaderBytes;
  if (hash_bytes(counts_, static_cast<size_t>(4 * documents_)) != load_at<uint64_t>(bytes, 32)) {
    fail(ErrorKind::corrupt, "'{}' is damaged: its checksum does not hold", path);
  }
  for (int64_t d = 0; d < documents_; ++d) {
    const int64_t length = corpus.document_range(d).count;
    if (masked(d) > length) {
      fail(ErrorKind::corrupt, "'{}' masks {} tokens of document {}, which has {}", path, masked(d),
           d, length);
    }
    masked_tokens_ += masked(d);
  }
}

int64_t LossMask::masked(int64_t document) const {
  TUTTI_CHECK(document >= 0 && document < documents_, "document {} of {}", document, documents_);
  uint32_t count = 0;
  std::memcpy(&count, counts_ + document * static_cast<int64_t>(sizeof count), sizeof count);
  return count;
}

std::unique_ptr<const LossMask> open_loss_mask(FileSystem& files, const Corpus& corpus) {
  if (!files.exists(corpus_paths(corpus.prefix()).mask)) return nullptr;
  return std::make_unique<const LossMask>(files, corpus);
}

}  // namespace tutti::data
