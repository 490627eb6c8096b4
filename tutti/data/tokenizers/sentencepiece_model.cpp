#include "tutti/data/tokenizers/sentencepiece_model.h"

#include <bit>
#include <cstring>

#include "tutti/data/tokenizers/space_mark.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}

  // The next field; false at the end or where the bytes are none.
  bool next() {
    uint64_t key = 0;
    if (bytes_.empty() || !varint(key)) return false;
    field = key >> 3;
    text = {};
    number = 0;
    switch (key & 7U) {
      case 0: return varint(number);
      case 1: return take(8);
      case 2: return varint(number) && take(number);
      case 5: return take(4);
      default: return false;
    }
  }
  float real() const {
    uint32_t bits = 0;
    if (text.size() == 4) std::memcpy(&bits, text.data(), 4);
    return std::bit_cast<float>(bits);
  }
  uint64_t field = 0, number = 0;
  std::string_view text;

 private:
  bool take(uint64_t size) {
    if (size > bytes_.size()) return false;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  std::string_view bytes_;
};

}  // namespace

SentencePieceModelFile read_sentencepiece_model(std::string_view bytes) {
  SentencePieceModelFile model;
  for (ProtoReader field(bytes); field.next();) {
    if (field.field == 1) {
      SentencePieceModelFile::Piece& piece = model.pieces.emplace_back();
      for (ProtoReader part(field.text); part.next();) {
        if (part.field == 1) piece.text = std::string(part.text);
        if (part.field == 2) piece.score = part.real();
        if (part.field == 3) {
          piece.type = static_cast<SentencePieceModelFile::Type>(part.number);
        }
      }
    } else if (field.field == 2) {  // trainer_spec
      for (ProtoReader spec(field.text); spec.next();) {
        if (spec.field == 3) model.kind = static_cast<SentencePieceModelFile::Kind>(spec.number);
        if (spec.field == 24) model.space_as_suffix = spec.number != 0;
        if (spec.field == 35) model.byte_fallback = spec.number != 0;
      }
    } else if (field.field == 3) {  // normalizer_spec
      for (ProtoReader spec(field.text); spec.next();) {
        if (spec.field == 1) model.normalizer = std::string(spec.text);
        if (spec.field == 2) model.charsmap = std::string(spec.text);
        if (spec.field == 3) model.dummy_prefix = spec.number != 0;
        if (spec.field == 4) model.remove_extra_spaces = spec.number != 0;
        if (spec.field == 5) model.escape_spaces = spec.number != 0;
      }
    }
  }
  return model;
}

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModelFile& model,
                                                 const std::string& origin)
    : charsmap_(model.charsmap, origin),
      dummy_prefix_(model.dummy_prefix),
      remove_extra_spaces_(model.remove_extra_spaces) {
  for (bool& plain : plain_) plain = true;
  std::vector<PrefixTrie::Key> keys;
  for (const auto& piece : model.pieces) {
    if (piece.type != SentencePieceModelFile::Type::user_defined || piece.text.empty()) continue;
    keys.emplace_back(piece.text, static_cast<int32_t>(keys.size()));
    const auto lead = static_cast<unsigned char>(piece.text[0]);
    if (lead < 128) plain_[lead] = false;
  }
  user_defined_ = PrefixTrie(std::move(keys));
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::prefix(std::string_view text) const {
  const auto lead = static_cast<unsigned char>(text[0]);
  const auto second = static_cast<unsigned char>(text.size() > 1 ? text[1] : '\0');
  if (lead < 128 && second < 128 && text.size() > 1 && plain_[lead] &&
      !charsmap_.starts_with(lead, second)) {
    return {1, text.substr(0, 1)};
  }
  size_t defined = 0;
  user_defined_.prefixes(text, [&](size_t bytes, int32_t) { defined = bytes; });
  if (defined > 0) return {defined, text.substr(0, defined)};
  if (const CharsmapMatch match = charsmap_.longest(text); match.bytes > 0) {
    return {match.bytes, match.replacement};
  }
  const Utf8Char c = decode_utf8(text, 0);
  return {c.bytes, c.valid ? text.substr(0, c.bytes) : std::string_view("\xef\xbf\xbd")};
}

void SentencePieceNormalizer::append(std::string_view text, bool rest, std::string& out) const {
  const bool trims = remove_extra_spaces_;
  if (trims && !rest) {
    while (!text.empty()) {
      const Prefix head = prefix(text);
      if (head.normal != " ") break;
      text.remove_prefix(head.bytes);
    }
  }
  if (text.empty()) return;
  const size_t start = out.size();
  if (dummy_prefix_ && !rest) out += kSpaceMark;
  bool after_space = trims && !rest;
  while (!text.empty()) {
    Prefix next = prefix(text);
    text.remove_prefix(next.bytes);
    while (after_space && next.normal.starts_with(' ')) next.normal.remove_prefix(1);
    if (next.normal.empty()) continue;
    for (const char byte : next.normal) {
      if (byte == ' ') {
        out += kSpaceMark;
      } else {
        out += byte;
      }
    }
    after_space = trims && next.normal.back() == ' ';
  }
  while (trims && out.size() > start && out.ends_with(kSpaceMark)) {
    out.resize(out.size() - kSpaceMark.size());
  }
}

}  // namespace tutti::data
