// Whole documents packed into windows of T rows, for data.packing: documents.
//
// A document of L tokens has L - 1 rows: token i with token i + 1 as its target. (Its last token is
// a target only, so a document of one token has no rows.) More than T rows are cut into pieces of T
// and a rest; the target of a piece's last row is still of the same document. A window holds
// pieces of at most T rows together; what is left over is padding.
//
// Pieces are packed by best fit, longest first (best-fit decreasing, Johnson 1974), in blocks of
// kPackingBlock consecutive pieces: a piece goes to the window of its block with the least room
// that suffices, of equal ones the last touched; else to a new window. Within a window pieces are
// in the order of the corpus. Everything is a function of the documents' lengths and T alone.
//
// Memory: 8 bytes per piece and per window, and while packing about 40 bytes per piece of a block.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tutti::data {

inline constexpr int64_t kPackingBlock = int64_t{1} << 20;

// Rows [part * T, min((part + 1) T, L - 1)) of a document.
struct Piece {
  int64_t document = 0;
  int64_t part = 0;
};

class PackedWindows {
 public:
  // `tokens_of(d)` is the length L of document d. Throws unsupported beyond 2^40 documents or 2^24
  // parts of one document.
  PackedWindows(int64_t documents, const std::function<int64_t(int64_t)>& tokens_of,
                int64_t sequence);

  int64_t windows() const { return static_cast<int64_t>(first_.size()) - 1; }
  int64_t pieces(int64_t window) const {
    const auto at = static_cast<size_t>(window);
    return first_[at + 1] - first_[at];
  }
  Piece piece(int64_t window, int64_t index) const;

  // Rows that are not padding, and their share of all rows (1 without windows).
  int64_t useful_rows() const { return useful_rows_; }
  double useful_share() const;
  // Of a sequence of T rows, summed over pieces: rows squared, which attention's work follows.
  int64_t squared_rows() const { return squared_rows_; }
  int64_t split_documents() const { return split_documents_; }  // of more than T rows
  int64_t documents_without_rows() const { return without_rows_; }

 private:
  struct Waiting;
  void pack_block(Waiting& waiting);

  int64_t sequence_;
  std::vector<uint64_t> pieces_;  // document << 24 | part, by windows
  std::vector<int64_t> first_ = {0};
  int64_t useful_rows_ = 0, squared_rows_ = 0, split_documents_ = 0, without_rows_ = 0;
};

}  // namespace tutti::data
