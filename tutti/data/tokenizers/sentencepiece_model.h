// What a SentencePiece model (`.model`, sentencepiece_model.proto) says beyond its library, and the
// text it makes of a text before the pieces are chosen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/data/tokenizers/charsmap.h"
#include "tutti/data/tokenizers/prefix_trie.h"

namespace tutti::data {

struct SentencePieceModelFile {
  enum class Kind { unigram = 1, bpe = 2, word = 3, characters = 4 };
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::unigram;
  std::string normalizer = "nmt_nfkc";
  std::string charsmap;
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool space_as_suffix = false;
  bool byte_fallback = false;
};

// Of bytes that the library accepts.
SentencePieceModelFile read_sentencepiece_model(std::string_view bytes);

// Of models that mark spaces in front of words: rules of the charsmap, longest first, except in
// pieces that users defined; spaces as marks; what is not UTF-8 as U+FFFD; a space in front; with
// remove_extra_spaces none at the ends and one at most between.
class SentencePieceNormalizer {
 public:
  SentencePieceNormalizer() = default;
  SentencePieceNormalizer(const SentencePieceModelFile& model, const std::string& origin);

  // Appends the normal form of `text`; `rest`: it continues a document, with a space that belongs
  // to it.
  void append(std::string_view text, bool rest, std::string& out) const;

 private:
  struct Prefix {
    size_t bytes = 0;
    std::string_view normal;
  };
  Prefix prefix(std::string_view text) const;

  Charsmap charsmap_;
  PrefixTrie user_defined_;
  bool plain_[128] = {};  // no piece of a user starts so
  bool dummy_prefix_ = true;
  bool remove_extra_spaces_ = true;
};

}  // namespace tutti::data
