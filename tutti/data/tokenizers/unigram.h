// Unigram language models over pieces (Kudo 2018, arXiv:1804.10959): of all ways to divide a text
// into pieces the one with the greatest sum of scores (log-probabilities); of equals the one whose
// last piece is longest, and so on from the end. A character that is not a piece counts as
// `unknown_score`; neighbours of that kind become one unknown token, or with `byte_fallback` the
// tokens <0x00> .. <0xFF> of their bytes. Sums are in f64.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/prefix_trie.h"

namespace tutti::data {

struct UnigramPiece {
  std::string text;
  int32_t id = 0;
  double score = 0;
};

struct UnigramOptions {
  int32_t unknown = -1;  // for what has no token; -1: an error
  double unknown_score = 0;
  bool byte_fallback = false;
  int32_t byte_ids[256] = {};  // with byte_fallback; -1: none
};

// Working memory of one thread.
class UnigramScratch {
  friend class UnigramModel;
  struct Node {  // the best division of the text up to here
    double score = 0;
    int32_t bytes = 0;  // of its last piece; 0: not reached
    int32_t piece = -1;
  };
  std::vector<Node> nodes_;
  std::vector<std::pair<size_t, size_t>> path_;
};

class UnigramModel {
 public:
  UnigramModel(const std::vector<UnigramPiece>& pieces, const UnigramOptions& options);

  // Appends the ids of `text`, of less than 2 GiB. Throws usage for what has no token.
  void encode(std::string_view text, UnigramScratch& scratch, std::vector<int32_t>& out) const;
  // -1 when these bytes are not a piece.
  int32_t find(std::string_view piece) const;

 private:
  void add_unknown(std::string_view text, std::vector<int32_t>& out) const;

  UnigramOptions options_;
  std::vector<double> scores_;  // by piece
  std::vector<int32_t> ids_;
  PrefixTrie trie_;
};

}  // namespace tutti::data
