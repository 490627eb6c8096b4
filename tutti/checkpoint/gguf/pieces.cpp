#include "tutti/checkpoint/gguf/pieces.h"

#include <cstring>

#include "tutti/base/error.h"

namespace tutti::checkpoint {
namespace {

enum Wire : uint64_t { wire_varint = 0, wire_64 = 1, wire_bytes = 2, wire_32 = 5 };

// Iterates over the fields of one message.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool next() {
    if (at_ >= bytes_.size()) return false;
    const uint64_t tag = varint();
    field = tag >> 3U;
    value = 0;
    content = {};
    switch (tag & 7U) {
      case wire_varint: value = varint(); break;
      case wire_64: content = take(8); break;
      case wire_bytes: content = take(varint()); break;
      case wire_32: content = take(4); break;
      default: refuse();
    }
    return true;
  }

  uint64_t field = 0;
  uint64_t value = 0;        // of a varint
  std::string_view content;  // of all others

 private:
  [[noreturn]] void refuse() const {
    fail(ErrorKind::corrupt, "'{}': not a SentencePiece model: damaged at byte {} of a message",
         path_, at_);
  }
  uint64_t varint() {
    uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) refuse();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      out |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) return out;
    }
    refuse();
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) refuse();
    const std::string_view out = bytes_.substr(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return out;
  }

  std::string_view bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

Piece read_piece(std::string_view bytes, const std::string& path) {
  Piece piece;
  for (Fields fields(bytes, path); fields.next();) {
    if (fields.field == 1) piece.text = fields.content;
    if (fields.field == 2 && fields.content.size() == 4) {
      std::memcpy(&piece.score, fields.content.data(), 4);
    }
    if (fields.field == 3) piece.kind = static_cast<int32_t>(fields.value);
  }
  return piece;
}

class Message {
 public:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
    bytes += static_cast<char>(value);
  }
  void number(uint64_t field, int64_t value) {
    varint(field << 3U);
    varint(static_cast<uint64_t>(value));
  }
  void text(uint64_t field, std::string_view value) {
    varint((field << 3U) | wire_bytes);
    varint(value.size());
    bytes += value;
  }
  void real(uint64_t field, float value) {
    varint((field << 3U) | wire_32);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string bytes;
};

}  // namespace

PieceModel read_pieces(std::string_view bytes, const std::string& path) {
  PieceModel model;
  for (Fields fields(bytes, path); fields.next();) {
    if (fields.field == 1) model.pieces.push_back(read_piece(fields.content, path));
    if (fields.field == 2) {
      for (Fields trainer(fields.content, path); trainer.next();) {
        if (trainer.field == 3) model.model_type = static_cast<int64_t>(trainer.value);
      }
    }
    if (fields.field == 3) {
      for (Fields normalizer(fields.content, path); normalizer.next();) {
        if (normalizer.field == 3) model.dummy_prefix = normalizer.value != 0;
      }
    }
  }
  if (model.pieces.empty())
    fail(ErrorKind::corrupt, "'{}': a SentencePiece model without pieces", path);
  return model;
}

std::string write_pieces(const PieceModel& model, int64_t unknown, int64_t begin, int64_t end) {
  Message out;
  for (const Piece& piece : model.pieces) {
    Message one;
    one.text(1, piece.text);
    one.real(2, piece.score);
    if (piece.kind != 1) one.number(3, piece.kind);
    out.text(1, one.bytes);
  }
  Message trainer;
  trainer.number(3, model.model_type);
  trainer.number(35, 1);  // byte fallback
  trainer.number(40, unknown);
  trainer.number(41, begin);
  trainer.number(42, end);
  trainer.number(43, -1);  // no padding
  out.text(2, trainer.bytes);
  Message normalizer;
  normalizer.text(1, "identity");
  normalizer.number(3, model.dummy_prefix ? 1 : 0);
  normalizer.number(4, 0);  // keeps all spaces
  normalizer.number(5, 1);  // as marks
  out.text(3, normalizer.bytes);
  return out.bytes;
}

}  // namespace tutti::checkpoint
