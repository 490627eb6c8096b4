// The part of a SentencePiece model (tokenizer.model, a protocol buffer) that GGUF files contain:
// its pieces with scores and kinds. Source: sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::checkpoint {

struct Piece {
  std::string text;
  float score = 0;
  int32_t kind = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
};

struct PieceModel {
  std::vector<Piece> pieces;  // by id
  int64_t model_type = 1;     // 1 unigram, 2 BPE
  bool dummy_prefix = true;
};

// Throws corrupt naming `path`.
PieceModel read_pieces(std::string_view bytes, const std::string& path);
// A BPE model without normalization, with byte fallback. Negative ids: none.
std::string write_pieces(const PieceModel& model, int64_t unknown, int64_t begin, int64_t end);

}  // namespace tutti::checkpoint
