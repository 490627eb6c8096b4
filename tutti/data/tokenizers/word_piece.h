// Models that look whole words up. WordPiece (Schuster and Nakajima 2012, as in BERT): the longest
// token that a word starts with, then the longest continuation, which is written with a prefix such
// as "##"; a word of which a part is not a token is one unknown token as a whole, as is one of too
// many characters. WordLevel: a word is a token or unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/data/tokenizers/prefix_trie.h"

namespace tutti::data {

class WordPieceModel {
 public:
  // `unknown`: -1 when there is no such token, so that what is unknown is an error.
  WordPieceModel(const std::vector<std::pair<std::string, int32_t>>& tokens,
                 const std::string& prefix, size_t most_chars, int32_t unknown);
  // Appends the ids of `word`. Throws usage for what has no token.
  void encode(std::string_view word, std::vector<int32_t>& out) const;

 private:
  PrefixTrie starts_, continuations_;
  size_t most_chars_;
  int32_t unknown_;
};

class WordLevelModel {
 public:
  WordLevelModel(const std::vector<std::pair<std::string, int32_t>>& tokens, int32_t unknown);
  void encode(std::string_view word, std::vector<int32_t>& out) const;

 private:
  std::unordered_map<std::string, int32_t> ids_;
  int32_t unknown_;
};

}  // namespace tutti::data
