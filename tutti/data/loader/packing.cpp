#include "tutti/data/loader/packing.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::data {
namespace {

constexpr int kPartBits = 24;
constexpr int64_t kMostParts = int64_t{1} << kPartBits;
constexpr int64_t kMostDocuments = int64_t{1} << (64 - kPartBits);

// A set of integers in [0, size), for the least member that is not below a value: bits, and bits
// of words that have any, and so on up to one word.
class OrderedSet {
 public:
  explicit OrderedSet(int64_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(static_cast<size_t>(size), 0);
    } while (size > 1);
  }
  void insert(int64_t value) {
    for (auto& level : levels_) {
      level[static_cast<size_t>(value / 64)] |= uint64_t{1} << (value % 64);
      value /= 64;
    }
  }
  void erase(int64_t value) {
    for (auto& level : levels_) {
      uint64_t& word = level[static_cast<size_t>(value / 64)];
      word &= ~(uint64_t{1} << (value % 64));
      if (word != 0) return;
      value /= 64;
    }
  }
  // -1 when there is none.
  int64_t least_from(int64_t value) const {
    for (size_t height = 0; height < levels_.size(); ++height) {
      const auto at = static_cast<size_t>(value / 64);
      if (at >= levels_[height].size()) return -1;
      const uint64_t rest = levels_[height][at] >> (value % 64);
      if (rest != 0) {
        value += __builtin_ctzll(rest);
        while (height-- > 0) {
          value = value * 64 + __builtin_ctzll(levels_[height][static_cast<size_t>(value)]);
        }
        return value;
      }
      value = static_cast<int64_t>(at) + 1;
    }
    return -1;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace

// The pieces of a block, in the order of the corpus.
struct PackedWindows::Waiting {
  std::vector<uint64_t> ids;
  std::vector<int64_t> rows;
};

PackedWindows::PackedWindows(int64_t documents, const std::function<int64_t(int64_t)>& tokens_of,
                             int64_t sequence)
    : sequence_(sequence) {
  TUTTI_CHECK(sequence > 0 && documents >= 0, "packing {} documents into windows of {}", documents,
              sequence);
  if (documents > kMostDocuments) {
    fail(ErrorKind::unsupported, "packing of {} documents; at most {} can be packed", documents,
         kMostDocuments);
  }
  Waiting waiting;
  for (int64_t document = 0; document < documents; ++document) {
    const int64_t all = tokens_of(document) - 1;
    if (all <= 0) ++without_rows_;
    if (all > sequence) ++split_documents_;
    if (all > kMostParts * sequence) {
      fail(ErrorKind::unsupported, "document {} has {} tokens, more than {} windows of {}",
           document, all + 1, kMostParts, sequence);
    }
    for (int64_t part = 0; part * sequence < all; ++part) {
      const int64_t rows = std::min(sequence, all - part * sequence);
      waiting.ids.push_back(static_cast<uint64_t>(document) << kPartBits |
                            static_cast<uint64_t>(part));
      waiting.rows.push_back(rows);
      useful_rows_ += rows;
      squared_rows_ += rows * rows;
      if (static_cast<int64_t>(waiting.ids.size()) == kPackingBlock) pack_block(waiting);
    }
  }
  pack_block(waiting);
}

void PackedWindows::pack_block(Waiting& waiting) {
  const size_t count = waiting.ids.size();
  // Longest first, equal ones in the order of the corpus: a counting sort.
  std::vector<uint32_t> begin(static_cast<size_t>(sequence_) + 2, 0);
  for (const int64_t rows : waiting.rows) ++begin[static_cast<size_t>(sequence_ - rows) + 1];
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<uint32_t> order(count);
  for (size_t i = 0; i < count; ++i) {
    order[begin[static_cast<size_t>(sequence_ - waiting.rows[i])]++] = static_cast<uint32_t>(i);
  }

  // Windows with equal room are a stack, linked through `below`.
  constexpr int32_t kNone = -1;
  OrderedSet rooms(sequence_ + 1);
  std::vector<int32_t> top(static_cast<size_t>(sequence_) + 1, kNone);
  std::vector<int32_t> below;
  std::vector<uint32_t> window_of(count);
  for (const uint32_t i : order) {
    const int64_t rows = waiting.rows[i];
    int64_t room = rooms.least_from(rows);
    int32_t window = 0;
    if (room < 0) {
      window = static_cast<int32_t>(below.size());
      below.push_back(kNone);
      room = sequence_;
    } else {
      int32_t& stack = top[static_cast<size_t>(room)];
      window = stack;
      stack = below[static_cast<size_t>(window)];
      if (stack == kNone) rooms.erase(room);
    }
    window_of[i] = static_cast<uint32_t>(window);
    room -= rows;
    if (room == 0) continue;
    int32_t& stack = top[static_cast<size_t>(room)];
    if (stack == kNone) rooms.insert(room);
    below[static_cast<size_t>(window)] = stack;
    stack = window;
  }

  const size_t old_windows = first_.size() - 1;
  const auto old_pieces = static_cast<int64_t>(pieces_.size());
  std::vector<int64_t> next(below.size() + 1, 0);
  for (const uint32_t window : window_of) ++next[window + 1];
  for (size_t w = 1; w < next.size(); ++w) next[w] += next[w - 1];
  for (size_t w = 0; w < below.size(); ++w) first_.push_back(old_pieces + next[w + 1]);
  pieces_.resize(pieces_.size() + count);
  for (size_t i = 0; i < count; ++i) {
    pieces_[static_cast<size_t>(old_pieces + next[window_of[i]]++)] = waiting.ids[i];
  }
  TUTTI_CHECK(first_.size() == old_windows + below.size() + 1, "{} windows", first_.size());
  waiting.ids.clear();
  waiting.rows.clear();
}

Piece PackedWindows::piece(int64_t window, int64_t index) const {
  TUTTI_CHECK(window >= 0 && window < windows() && index >= 0 && index < pieces(window),
              "piece {} of window {} of {}", index, window, windows());
  const uint64_t id = pieces_[static_cast<size_t>(first_[static_cast<size_t>(window)] + index)];
  return {static_cast<int64_t>(id >> kPartBits), static_cast<int64_t>(id & (kMostParts - 1))};
}

double PackedWindows::useful_share() const {
  if (windows() == 0) return 1;
  return static_cast<double>(useful_rows_) /
         (static_cast<double>(windows()) * static_cast<double>(sequence_));
}

}  // namespace tutti::data
