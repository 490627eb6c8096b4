// Byte pair encoding of single words (Sennrich et al. 2016, arXiv:1508.07909): a word starts as one
// symbol per byte or character; as long as two neighbours have a merge, the pair with the lowest
// rank, the leftmost of equals, becomes one symbol. Short words are searched linearly, long ones
// through a heap: n log n, whatever the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::data {

struct BpeOptions {
  bool bytes = true;           // symbols are bytes; else characters of UTF-8
  bool byte_fallback = false;  // a character without token becomes tokens <0x00> .. <0xFF>
  bool whole_words = false;    // a word that is a token is never divided (`ignore_merges`)
  int32_t unknown = -1;        // for what has no token; -1: an error
  bool fuse_unknown = false;   // neighbours of that kind become one
};

// Working memory of one thread.
class BpeScratch {
  friend class BpeModel;
  struct Symbol {
    int32_t id = 0;
    int32_t previous = -1, next = -1;  // in long words
  };
  struct Pair {
    uint32_t rank = 0;
    int32_t id = 0;  // of the merged symbol
  };
  std::vector<Symbol> symbols_;
  std::vector<Pair> pairs_;
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t id;
    bool operator<(const Candidate& other) const {  // the heap's top is the least
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::vector<Candidate> heap_;
};

class BpeModel {
 public:
  // `tokens`: the bytes of each token with its id; `merges`: left and right in order of rank, each
  // of them and both together tokens. Throws corrupt naming `origin` and the merge that is not.
  BpeModel(const std::vector<std::pair<std::string, int32_t>>& tokens,
           const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options,
           const std::string& origin);

  // Appends the ids of `word`, which is not empty. Throws usage for what has no token.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;

  // -1 when these bytes are not a token.
  int32_t find(std::string_view token) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    BpeScratch::Pair pair;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  BpeScratch::Pair pair(int32_t left, int32_t right) const;
  void insert_pair(int32_t left, int32_t right, BpeScratch::Pair pair);
  void split(std::string_view word, BpeScratch& scratch) const;
  void add_unknown(std::string_view symbol, BpeScratch& scratch) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  BpeOptions options_;
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> ids_;
  int32_t byte_ids_[256];  // with `bytes` the symbol, else the fallback token; -1: none
  std::vector<Slot> slots_;
  uint64_t slot_mask_ = 0;
};

}  // namespace tutti::data
