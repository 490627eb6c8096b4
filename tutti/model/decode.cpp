#include "tutti/model/decode.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/model/rope_frequency.h"
#include "tutti/model/stage.h"

namespace tutti::model {
namespace {

constexpr int64_t kChunkRows = 64;  // prompt tokens per pass

// In place: nothing is kept for a backward pass.
void norm_decoded(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix qkv) {
  if (!layer.norms) return;
  const int64_t queries = layer.heads * layer.head_dim;
  const auto norm = [&](const NormWeights& weights, int64_t first, int64_t width) {
    const engine::Matrix x = qkv.slice_cols(first, width);
    stream.ops().rms_norm_forward(stream, {.x = x,
                                           .groups = width / weights.weight.count,
                                           .weight = weights.weight,
                                           .offset = layer.norms.offset,
                                           .epsilon = layer.norms.epsilon,
                                           .y = x});
  };
  norm(layer.norms.query, 0, queries);
  norm(layer.norms.key, queries, layer.kv_heads * layer.head_dim);
}

void end_decoded_branch(engine::Stream& stream, const BlockLayer& layer, const NormLayer& norm,
                        engine::Matrix branch) {
  if (norm.weights.weight) {
    stream.ops().rms_norm_forward(stream, {.x = branch,
                                           .weight = norm.weights.weight,
                                           .offset = norm.offset,
                                           .epsilon = norm.epsilon,
                                           .y = branch});
  }
  if (layer.residual_multiplier != 1) {
    stream.ops().copy(stream, {.x = branch, .out = branch, .scale = layer.residual_multiplier});
  }
}

}  // namespace

// Lays out buffers one after another: first counts bytes, then returns views.
class Decoder::Carver {
 public:
  explicit Carver(const engine::Arena* arena) : arena_(arena) {}

  engine::Matrix take(DType dtype, int64_t rows, int64_t cols) {
    const int64_t bytes = rows * cols * dtype_bytes(dtype);
    void* data = arena_ == nullptr ? nullptr : arena_->at(offset_, bytes);
    offset_ +=
        (bytes + engine::kArenaAlignment - 1) / engine::kArenaAlignment * engine::kArenaAlignment;
    return engine::matrix(data, dtype, rows, cols);
  }
  int64_t bytes() const { return offset_; }

 private:
  const engine::Arena* arena_;
  int64_t offset_ = 0;
};

Decoder::Decoder(const spec::ModelConfig& model, const spec::ParamLayout& layout, void* weights,
                 DType compute, int64_t capacity, int64_t sequences)
    : model_(model),
      compute_(compute),
      capacity_(capacity),
      positions_(static_cast<size_t>(sequences)) {
  const Parameters parameters(layout, weights, compute, nullptr);
  RopeFrequencies rope;
  const auto frequencies = [&](bool window, std::vector<float>& values) {
    values = rope_frequencies(model, window);
    return engine::vector(values.data(), DType::f32, static_cast<int64_t>(values.size()));
  };
  if (model.positions == spec::Positions::rope) rope.all = frequencies(false, frequency_);
  if (model.window_rope_theta > 0) rope.window = frequencies(true, window_frequency_);
  embedding_ = bind_embedding(model, parameters);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    blocks_.push_back(bind_block(model, parameters, layer, rope, capacity, 0));
    blocks_.back().moe.config.capacity_factor = 0;  // no token is dropped
  }
  final_norm_ = bind_final_norm(model, parameters);
  head_ = bind_loss(model, parameters);
  head_.head.decodes = true;

  const int64_t kv_width = model.kv_heads * model.head_dim;
  const int64_t query_width = model.heads * model.head_dim;
  const int64_t gate = spec::is_gated(model) ? 2 : 1;
  const int64_t chunk = std::max(kChunkRows, sequences);
  int64_t low_rank_width = 0;
  for (const BlockLayer& block : blocks_) {
    for (const Linear* linear :
         {&block.attention.qkv, &block.attention.output, &block.mlp.up, &block.mlp.down}) {
      low_rank_width =
          std::max(low_rank_width, static_cast<int64_t>(linear->adapters.count) * layout.lora.rank);
    }
  }
  const auto carve = [&](Carver carver) {
    keys_.clear();
    values_.clear();
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      keys_.push_back(carver.take(compute, sequences * capacity, kv_width));
      values_.push_back(carver.take(compute, sequences * capacity, kv_width));
    }
    residual_ = carver.take(DType::f32, chunk, model.hidden);
    y_ = carver.take(compute, chunk, model.hidden);
    branch_ = carver.take(compute, chunk, model.hidden);
    qkv_ = carver.take(compute, chunk, query_width + 2 * kv_width);
    attention_ = carver.take(compute, chunk, query_width);
    if (model.attention_sinks) lse_ = carver.take(DType::f32, chunk, model.heads);
    pre_ = carver.take(compute, chunk, gate * model.ffn);
    act_ = carver.take(compute, chunk, model.ffn);
    if (model.moe.experts > 0) carve_moe(carver, chunk);
    low_rank_ = carver.take(compute, chunk, std::max<int64_t>(1, low_rank_width));
    logits_ = carver.take(DType::f32, sequences, head_.head.weight.rows);
    row_positions_ = engine::vector(carver.take(DType::i32, 1, chunk).data, DType::i32, chunk);
    row_starts_ = engine::vector(carver.take(DType::i32, 1, chunk).data, DType::i32, chunk);
    return carver.bytes();
  };
  arena_ = std::make_unique<engine::Arena>("decode", carve(Carver(nullptr)));
  carve(Carver(arena_.get()));
  for (BlockLayer& block : blocks_) {
    for (Linear* linear :
         {&block.attention.qkv, &block.attention.output, &block.mlp.up, &block.mlp.down}) {
      linear->adapters.low_rank = low_rank_;
      linear->decodes = true;
    }
  }
}

void Decoder::carve_moe(Carver& carver, int64_t chunk) {
  const spec::MixtureOfExperts& moe = model_.moe;
  const int64_t gate = spec::is_gated(model_) ? 2 : 1;
  const int64_t copies = chunk * moe.top_k;
  const auto flat = [&](DType dtype, int64_t count) {
    return engine::vector(carver.take(dtype, 1, count).data, dtype, count);
  };
  moe_.probabilities = carver.take(DType::f32, chunk, moe.experts);
  moe_.lse = flat(DType::f32, chunk);
  moe_.experts = carver.take(DType::i32, chunk, moe.top_k);
  moe_.weights = carver.take(DType::f32, chunk, moe.top_k);
  moe_.positions = carver.take(DType::i32, chunk, moe.top_k);
  moe_.counts = carver.take(DType::i32, 1, moe.experts);
  moe_.offsets = flat(DType::i32, moe.experts + 1);
  moe_.input = carver.take(compute_, copies, model_.hidden);
  moe_.pre = carver.take(compute_, copies, gate * moe.expert_ffn);
  moe_.act = carver.take(compute_, copies, moe.expert_ffn);
  moe_.output = carver.take(compute_, copies, model_.hidden);
  const int64_t shared = moe.shared_experts * moe.expert_ffn;
  moe_.shared.pre = carver.take(compute_, chunk, gate * shared);
  moe_.shared.act = carver.take(compute_, chunk, shared);
}

MoeSaved Decoder::moe_rows(int64_t count) const {
  MoeSaved out = moe_;
  const int64_t copies = count * model_.moe.top_k;
  for (engine::Matrix* x : {&out.probabilities, &out.experts, &out.weights, &out.positions,
                            &out.shared.pre, &out.shared.act}) {
    *x = x->slice_rows(0, count);
  }
  for (engine::Matrix* x : {&out.input, &out.pre, &out.act, &out.output}) {
    *x = x->slice_rows(0, copies);
  }
  out.lse.count = count;
  return out;
}

engine::Matrix Decoder::rows(const engine::Matrix& buffer, int64_t count) {
  return buffer.slice_rows(0, count);
}

void Decoder::run_block(engine::Stream& stream, size_t index, const std::vector<Piece>& pieces,
                        int64_t count, bool has_branch) {
  const BlockLayer& layer = blocks_[index];
  const AttentionLayer& attention = layer.attention;
  const int64_t query_width = attention.heads * attention.head_dim;
  const int64_t kv_width = attention.kv_heads * attention.head_dim;
  const engine::Matrix branch = rows(branch_, count);
  const engine::Matrix residual = rows(residual_, count);
  const engine::Matrix qkv = rows(qkv_, count);
  NormSaved norm;
  norm.residual = residual;
  norm.y = rows(y_, count);

  norm_forward(stream, layer.norm1, residual, has_branch ? branch : engine::Matrix{}, norm);
  linear_forward(stream, attention.qkv, norm.y, qkv);
  norm_decoded(stream, attention, qkv);
  if (attention.rope_frequency) {
    stream.ops().rope(stream,
                      {.x = qkv,
                       .heads = attention.heads + attention.kv_heads,
                       .head_dim = attention.head_dim,
                       .rotated = attention.rotated,
                       .amplitude = attention.rope_amplitude,
                       .sequence = count,
                       .inverse_frequency = attention.rope_frequency,
                       .positions = engine::vector(row_positions_.data, DType::i32, count)});
  }
  const auto row_bytes = static_cast<size_t>(kv_width * dtype_bytes(compute_));
  for (const Piece& piece : pieces) {
    const engine::Matrix keys = keys_[index].slice_rows(piece.sequence * capacity_, capacity_);
    const engine::Matrix values = values_[index].slice_rows(piece.sequence * capacity_, capacity_);
    for (int64_t row = 0; row < piece.count; ++row) {
      const engine::Matrix from = qkv.slice_rows(piece.first + row, 1);
      std::memcpy(keys.slice_rows(piece.past + row, 1).data,
                  from.slice_cols(query_width, kv_width).data, row_bytes);
      std::memcpy(values.slice_rows(piece.past + row, 1).data,
                  from.slice_cols(query_width + kv_width, kv_width).data, row_bytes);
    }
    const engine::Vector lse =
        attention.sinks ? engine::vector(lse_.data, DType::f32, piece.count * attention.heads)
                        : engine::Vector{};
    stream.ops().attention_decode(
        stream,
        {.batch = 1,
         .queries = piece.count,
         .past = piece.past,
         .heads = attention.heads,
         .kv_heads = attention.kv_heads,
         .head_dim = attention.head_dim,
         .capacity = capacity_,
         .scale = attention.scale,
         .softcap = attention.softcap,
         .q = qkv.slice_rows(piece.first, piece.count).slice_cols(0, query_width),
         .keys = keys,
         .values = values,
         .out = attention_.slice_rows(piece.first, piece.count),
         .starts = attention.windowed ? engine::vector(row_starts_.as<int32_t>() + piece.first,
                                                       DType::i32, piece.count)
                                      : engine::Vector{},
         .lse = lse});
    if (!attention.sinks) continue;
    stream.ops().attention_sink_forward(stream,
                                        {.batch = 1,
                                         .rows = piece.count,
                                         .heads = attention.heads,
                                         .head_dim = attention.head_dim,
                                         .sinks = attention.sinks,
                                         .out = attention_.slice_rows(piece.first, piece.count),
                                         .lse = lse});
  }
  linear_forward(stream, attention.output, rows(attention_, count), branch);
  end_decoded_branch(stream, layer, layer.attention_norm, branch);
  norm_forward(stream, layer.norm2, residual, branch, norm);
  if (layer.moe) {
    moe_forward(stream, layer.moe, {1, count}, {norm.y, {}, norm.y}, moe_rows(count), branch);
  } else {
    mlp_forward(stream, layer.mlp, norm.y, {rows(pre_, count), rows(act_, count)}, branch);
  }
  end_decoded_branch(stream, layer, layer.mlp_norm, branch);
}

// Runs the rows of `pieces` through all layers; y_ then holds the output of the final norm.
void Decoder::forward(engine::Stream& stream, const std::vector<int32_t>& tokens,
                      const std::vector<Piece>& pieces) {
  const auto count = static_cast<int64_t>(tokens.size());
  int32_t* position = row_positions_.as<int32_t>();
  for (const Piece& piece : pieces) {
    TUTTI_CHECK(piece.past + piece.count <= capacity_, "decode: {} tokens at {} of {}", piece.count,
                piece.past, capacity_);
    for (int64_t i = 0; i < piece.count; ++i) {
      position[piece.first + i] = static_cast<int32_t>(piece.past + i);
      row_starts_.as<int32_t>()[piece.first + i] =
          static_cast<int32_t>(std::max<int64_t>(0, piece.past + i - model_.window + 1));
    }
    positions_[static_cast<size_t>(piece.sequence)] += piece.count;
  }
  // The view is only read; operands of operations are not const.
  const engine::Vector ids = engine::vector(const_cast<int32_t*>(tokens.data()), DType::i32, count);
  const engine::Vector at = engine::vector(row_positions_.data, DType::i32, count);
  embedding_forward(stream, embedding_, ids, {count, at, 0}, rows(residual_, count));
  for (size_t i = 0; i < blocks_.size(); ++i) run_block(stream, i, pieces, count, i > 0);
  NormSaved norm;
  norm.residual = rows(residual_, count);
  norm.y = rows(y_, count);
  norm_forward(stream, final_norm_, norm.residual, rows(branch_, count), norm);
}

std::vector<float> Decoder::feed(engine::Stream& stream, const std::vector<int32_t>& tokens,
                                 int64_t sequence) {
  const auto total = static_cast<int64_t>(tokens.size());
  TUTTI_CHECK(total > 0, "decode: no tokens");
  int64_t last = 0;
  for (int64_t first = 0; first < total; first += kChunkRows) {
    const int64_t count = std::min(kChunkRows, total - first);
    forward(stream, {tokens.begin() + first, tokens.begin() + first + count},
            {{sequence, 0, count, position(sequence)}});
    last = count - 1;
  }
  head_logits(stream, head_, y_.slice_rows(last, 1), rows(logits_, 1));
  const float* logits = logits_.as<float>();
  return {logits, logits + head_.vocabulary};
}

std::vector<std::vector<float>> Decoder::step(engine::Stream& stream,
                                              const std::vector<Next>& next) {
  const auto count = static_cast<int64_t>(next.size());
  TUTTI_CHECK(count > 0 && next.size() <= positions_.size(), "decode: a step of {} sequences of {}",
              count, positions_.size());
  std::vector<int32_t> tokens;
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < count; ++row) {
    const Next& one = next[static_cast<size_t>(row)];
    tokens.push_back(one.token);
    pieces.push_back({one.sequence, row, 1, position(one.sequence)});
  }
  forward(stream, tokens, pieces);
  const engine::Matrix logits = rows(logits_, count);
  head_logits(stream, head_, rows(y_, count), logits);
  std::vector<std::vector<float>> out;
  for (int64_t row = 0; row < count; ++row) {
    const float* begin = logits.row<float>(row);
    out.emplace_back(begin, begin + head_.vocabulary);
  }
  return out;
}

}  // namespace tutti::model
