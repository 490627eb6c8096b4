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
constexpr uint32_t kRangesVersion = 2;
constexpr int64_t kRangeBytes = 16;
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

std::string loss_mask_bytes(const std::vector<uint32_t>& masked, int64_t tokens,
                            const std::vector<MaskedRange>& further) {
  std::string out(kMagic, sizeof kMagic);
  append(out, further.empty() ? kMaskVersion : kRangesVersion);
  append(out, uint32_t{0});
  append(out, static_cast<uint64_t>(masked.size()));
  append(out, static_cast<uint64_t>(tokens));
  std::string content(reinterpret_cast<const char*>(masked.data()),
                      masked.size() * sizeof(uint32_t));
  for (const MaskedRange& range : further) {
    append(content, range.document);
    append(content, range.begin);
    append(content, range.end);
  }
  append(out, hash_bytes(content.data(), content.size()));
  return out + content;
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
  if (version != kMaskVersion && version != kRangesVersion) {
    fail(ErrorKind::unsupported, "'{}' has version {}; this program reads versions {} and {}", path,
         version, kMaskVersion, kRangesVersion);
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
  const int64_t rest = size - kHeaderBytes - 4 * documents_;
  const bool whole = version == kMaskVersion ? rest == 0 : rest >= 0 && rest % kRangeBytes == 0;
  if (!whole) {
    fail(ErrorKind::corrupt, "'{}' has {} bytes instead of {} for {} documents", path, size,
         kHeaderBytes + 4 * documents_, documents_);
  }
  counts_ = bytes.data() + kHeaderBytes;
  ranges_ = rest / kRangeBytes;
  if (hash_bytes(counts_, static_cast<size_t>(size - kHeaderBytes)) !=
      load_at<uint64_t>(bytes, 32)) {
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
  check_ranges(corpus, path);
}

void LossMask::check_ranges(const Corpus& corpus, const std::string& path) {
  MaskedRange before;
  for (int64_t i = 0; i < ranges_; ++i) {
    const MaskedRange range = range_at(i);
    const bool same = i > 0 && range.document == before.document;
    const bool ordered =
        i == 0 || range.document > before.document || (same && range.begin > before.end);
    const auto document = static_cast<int64_t>(range.document);
    if (!ordered || range.document >= static_cast<uint64_t>(documents_) ||
        range.begin >= range.end || range.end > corpus.document_range(document).count ||
        range.begin <= masked(document)) {
      fail(ErrorKind::corrupt, "'{}': range {} masks tokens {} to {} of document {}, out of order",
           path, i, range.begin, range.end, range.document);
    }
    masked_tokens_ += range.end - range.begin;
    before = range;
  }
}

MaskedRange LossMask::range_at(int64_t index) const {
  const char* at = counts_ + 4 * documents_ + kRangeBytes * index;
  MaskedRange range;
  std::memcpy(&range.document, at, sizeof range.document);
  std::memcpy(&range.begin, at + 8, sizeof range.begin);
  std::memcpy(&range.end, at + 12, sizeof range.end);
  return range;
}

std::vector<MaskedRange> LossMask::further(int64_t document) const {
  int64_t low = 0;
  for (int64_t high = ranges_; low < high;) {
    const int64_t middle = low + (high - low) / 2;
    if (range_at(middle).document < static_cast<uint64_t>(document)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::vector<MaskedRange> found;
  for (; low < ranges_ && range_at(low).document == static_cast<uint64_t>(document); ++low) {
    found.push_back(range_at(low));
  }
  return found;
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
