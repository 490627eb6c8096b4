#include "tutti/data/tokenizers/byte_tokenizer.h"

#include "tutti/base/error.h"

namespace tutti::data {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  const size_t start = out.size();
  out.resize(start + text.size());
  for (size_t i = 0; i < text.size(); ++i) out[start + i] = static_cast<unsigned char>(text[i]);
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) {
      fail(ErrorKind::corrupt, "id {} is outside the byte tokenizer's vocabulary of {}", id,
           vocabulary_size());
    }
    if (id != end_of_document()) text += static_cast<char>(id);
  }
  return text;
}

}  // namespace tutti::data
