// One token per character (Unicode code point of UTF-8 text): the vocabulary is the sorted
// distinct characters of the whole corpus, held-out part included, as in nanoGPT's
// shakespeare_char. An end-of-document token follows the characters only where the corpus has
// more than one document, so that a single text gets exactly nanoGPT's vocabulary.
#pragma once

#include <array>
#include <bitset>
#include <memory>
#include <unordered_map>

#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

// The largest p <= position that is not inside a UTF-8 sequence.
size_t utf8_cut(std::string_view text, size_t position);

// The distinct characters of texts. 136 KiB.
class CharacterSet {
 public:
  CharacterSet();
  void add(std::string_view text);  // throws usage for text that is not UTF-8
  void merge(const CharacterSet& other);
  std::vector<char32_t> sorted() const;

 private:
  std::unique_ptr<std::bitset<0x110000>> seen_;
};

class CharTokenizer final : public Tokenizer {
 public:
  // `characters` sorted, distinct, at least one.
  CharTokenizer(std::vector<char32_t> characters, bool with_end_of_document);

  using Tokenizer::encode;
  std::string name() const override { return "char"; }
  int32_t vocabulary_size() const override;
  int32_t end_of_document() const override;
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t cut(std::string_view text, size_t position) const override;
  void describe(Json& object) const override;  // "characters": ["\n", " ", ...]

 private:
  int32_t id_of(char32_t character) const;  // throws usage when it is not in the vocabulary

  std::vector<char32_t> characters_;
  bool with_end_of_document_;
  std::array<int32_t, 128> ascii_;
  std::unordered_map<char32_t, int32_t> others_;
};

std::unique_ptr<CharTokenizer> char_tokenizer_from_json(const Json& value,
                                                        const std::string& origin);

}  // namespace tutti::data
