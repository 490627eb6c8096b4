#include "tutti/model/decode.h"

#include <algorithm>
#include <numeric>

#include "tutti/base/check.h"

namespace tutti::model {
namespace {

constexpr int64_t kChunkRows = 64;  // prompt tokens per pass

}  // namespace

Decoder::Decoder(const spec::ModelConfig& model, const spec::ParamLayout& layout, void* weights,
                 DType compute, int64_t capacity, int64_t sequences)
    : Decoder(model, Parameters(layout, weights, compute, nullptr), compute, capacity, sequences) {}

Decoder::Decoder(const spec::ModelConfig& model, const Parameters& parameters, DType compute,
                 int64_t capacity, int64_t sequences)
    : core_(model, parameters, compute,
            {.pages = sequences,
             .page_rows = capacity,
             .rows = std::max(kChunkRows, sequences),
             .logit_rows = sequences}),
      positions_(static_cast<size_t>(sequences)),
      pages_(static_cast<size_t>(sequences)) {
  std::iota(pages_.begin(), pages_.end(), 0);
}

PagedDecoder::Piece Decoder::piece(int64_t sequence, std::span<const int32_t> tokens) const {
  const int64_t past = position(sequence);
  TUTTI_CHECK(past + static_cast<int64_t>(tokens.size()) <= capacity(),
              "decode: {} tokens at {} of {}", tokens.size(), past, capacity());
  return {tokens, past, {&pages_[static_cast<size_t>(sequence)], 1}};
}

std::vector<float> Decoder::feed(engine::Stream& stream, const std::vector<int32_t>& tokens,
                                 int64_t sequence) {
  TUTTI_CHECK(!tokens.empty(), "decode: no tokens");
  std::span<const int32_t> rest = tokens;
  int64_t last = 0;
  while (!rest.empty()) {
    const size_t count = std::min(rest.size(), static_cast<size_t>(kChunkRows));
    const PagedDecoder::Piece next = piece(sequence, rest.first(count));
    core_.forward(stream, {&next, 1});
    positions_[static_cast<size_t>(sequence)] += static_cast<int64_t>(count);
    last = static_cast<int64_t>(count) - 1;
    rest = rest.subspan(count);
  }
  const engine::Matrix logits = core_.logits(stream, {&last, 1});
  return {logits.row<float>(0), logits.row<float>(0) + logits.cols};
}

std::vector<std::vector<float>> Decoder::step(engine::Stream& stream,
                                              const std::vector<Next>& next) {
  TUTTI_CHECK(!next.empty() && next.size() <= positions_.size(),
              "decode: a step of {} sequences of {}", next.size(), positions_.size());
  std::vector<PagedDecoder::Piece> pieces;
  pieces.reserve(next.size());
  for (const Next& one : next) pieces.push_back(piece(one.sequence, {&one.token, 1}));
  core_.forward(stream, pieces);
  for (const Next& one : next) ++positions_[static_cast<size_t>(one.sequence)];
  std::vector<int64_t> all(next.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  const engine::Matrix logits = core_.logits(stream, all);
  std::vector<std::vector<float>> out;
  for (int64_t row = 0; row < logits.rows; ++row) {
    out.emplace_back(logits.row<float>(row), logits.row<float>(row) + logits.cols);
  }
  return out;
}

}  // namespace tutti::model
