// Every byte is a token: ids 0..255, and 256 ends a document. Represents any text.
#pragma once

#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string name() const override { return "byte"; }
  int32_t vocabulary_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  size_t cut(std::string_view /*text*/, size_t position) const override { return position; }
  void describe(Json& /*object*/) const override {}
};

}  // namespace tutti::data
