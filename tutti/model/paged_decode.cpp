#include "tutti/model/paged_decode.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/model/rope_frequency.h"
#include "tutti/model/stage.h"

namespace tutti::model {
namespace {

// In place: nothing is kept for a backward pass.
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

// Lays buffers one after another; first to count bytes, then to hand out views.
class PagedDecoder::Carver {
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

PagedDecoder::PagedDecoder(const spec::ModelConfig& model, const Parameters& parameters,
                           DType compute, const DecoderSizes& sizes)
    : model_(model), compute_(compute), sizes_(sizes) {
  RopeFrequencies rope;
  const auto frequencies = [&](bool window, std::vector<float>& values) {
    values = rope_frequencies(model, window);
    return engine::vector(values.data(), DType::f32, static_cast<int64_t>(values.size()));
  };
  if (model.positions == spec::Positions::rope) rope.all = frequencies(false, frequency_);
  if (model.window_rope_theta > 0) rope.window = frequencies(true, window_frequency_);
  embedding_ = bind_embedding(model, parameters);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    blocks_.push_back(bind_block(model, parameters, layer, rope, model.context, 0));
    blocks_.back().moe.config.capacity_factor = 0;  // nothing is dropped
  }
  final_norm_ = bind_final_norm(model, parameters);
  head_ = bind_loss(model, parameters);
  head_.head.decodes = true;

  const bool is_latent = model.attention == spec::Attention::latent;
  const int64_t kv_width = model.kv_heads * model.head_dim;
  const int64_t query_width = model.heads * model.head_dim;
  const int64_t gate = spec::is_gated(model) ? 2 : 1;
  const int64_t chunk = sizes.rows;
  int64_t low_rank_width = 0;
  for (const BlockLayer& block : blocks_) {
    for (const Linear* linear :
         {&block.attention.qkv, &block.attention.output, &block.mlp.up, &block.mlp.down}) {
      low_rank_width = std::max(
          low_rank_width, static_cast<int64_t>(linear->adapters.count) * parameters.lora().rank);
    }
  }
  const auto carve = [&](Carver carver) {
    keys_.clear();
    values_.clear();
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      if (is_latent) {
        keys_.push_back(
            carver.take(compute, sizes.pages * sizes.page_rows, spec::cached_columns(model)));
        values_.push_back(
            keys_.back().slice_cols(model.latent.rope_head_dim, model.latent.key_value_rank));
        continue;
      }
      keys_.push_back(carver.take(compute, sizes.pages * sizes.page_rows, kv_width));
      values_.push_back(carver.take(compute, sizes.pages * sizes.page_rows, kv_width));
    }
    residual_ = carver.take(DType::f32, chunk, model.hidden);
    y_ = carver.take(compute, chunk, model.hidden);
    branch_ = carver.take(compute, chunk, model.hidden);
    if (is_latent) {
      carve_latent(carver, chunk);
    } else {
      qkv_ = carver.take(compute, chunk, query_width + 2 * kv_width);
    }
    attention_ = carver.take(compute, chunk, model.heads * spec::value_dim(model));
    if (model.attention_sinks) lse_ = carver.take(DType::f32, chunk, model.heads);
    pre_ = carver.take(compute, chunk, gate * model.ffn);
    act_ = carver.take(compute, chunk, model.ffn);
    if (model.moe.experts > 0) carve_moe(carver, chunk);
    low_rank_ = carver.take(compute, chunk, std::max<int64_t>(1, low_rank_width));
    if (sizes.adapter_rank > 0) {
      const int64_t widest = std::max({query_width + 2 * kv_width, gate * model.ffn, model.hidden});
      adapter_buffers_.low_rank = carver.take(compute, engine::kFewRows, sizes.adapter_rank);
      adapter_buffers_.out = carver.take(DType::f32, engine::kFewRows, widest);
    }
    logits_ = carver.take(DType::f32, sizes.logit_rows, head_.head.weight.rows);
    row_positions_ = engine::vector(carver.take(DType::i32, 1, chunk).data, DType::i32, chunk);
    row_starts_ = engine::vector(carver.take(DType::i32, 1, chunk).data, DType::i32, chunk);
    row_tokens_ = engine::vector(carver.take(DType::i32, 1, chunk).data, DType::i32, chunk);
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
    for (Linear* linear : {&block.moe.router, &block.moe.up, &block.moe.down, &block.moe.shared.up,
                           &block.moe.shared.down}) {
      linear->decodes = true;
    }
    LatentLayer& latent = block.attention.latent;  // not kv_up, which is applied per head
    for (Linear* linear : {&latent.query_down, &latent.query, &latent.kv_down}) {
      linear->decodes = true;
    }
  }
}

int64_t PagedDecoder::cache_row_bytes(const spec::ModelConfig& model, DType compute) {
  return model.layers * spec::cached_columns(model) * dtype_bytes(compute);
}

void PagedDecoder::carve_latent(Carver& carver, int64_t chunk) {
  const spec::LatentAttention& latent = model_.latent;
  if (latent.query_rank > 0) {
    latent_.query_down = carver.take(compute_, chunk, latent.query_rank);
  }
  latent_.kv = carver.take(compute_, chunk, spec::cached_columns(model_));
  latent_.queries = carver.take(compute_, chunk, model_.heads * spec::key_dim(model_));
  latent_.absorbed = carver.take(compute_, chunk, model_.heads * spec::cached_columns(model_));
  latent_.out = carver.take(compute_, chunk, model_.heads * latent.key_value_rank);
}

void PagedDecoder::carve_moe(Carver& carver, int64_t chunk) {
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

MoeSaved PagedDecoder::moe_rows(int64_t count) const {
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

engine::Matrix PagedDecoder::rows(const engine::Matrix& buffer, int64_t count) {
  return buffer.slice_rows(0, count);
}

void PagedDecoder::run_block(engine::Stream& stream, size_t index, std::span<const Piece> pieces,
                             int64_t count, bool has_branch) {
  const BlockLayer& layer = blocks_[index];
  const AttentionLayer& attention = layer.attention;
  const engine::Matrix branch = rows(branch_, count);
  const engine::Matrix residual = rows(residual_, count);
  NormSaved norm;
  norm.residual = residual;
  norm.y = rows(y_, count);

  norm_forward(stream, layer.norm1, residual, has_branch ? branch : engine::Matrix{}, norm);
  if (attention.latent) {
    attend_latent(stream, index, pieces, count);
  } else {
    attend_grouped(stream, index, pieces, count);
  }
  linear_forward(stream, attention.output, rows(attention_, count), branch);
  add_adapters(stream, index, spec::Projection::output, rows(attention_, count), branch);
  end_decoded_branch(stream, layer, layer.attention_norm, branch);
  norm_forward(stream, layer.norm2, residual, branch, norm);
  if (layer.moe) {
    moe_forward(stream, layer.moe, {1, count}, {norm.y, {}, norm.y}, moe_rows(count), branch);
  } else {
    const MlpSaved saved = {rows(pre_, count), rows(act_, count)};
    mlp_forward(stream, layer.mlp, norm.y, saved, branch, {}, {.activation = false, .down = false});
    add_adapters(stream, index, spec::Projection::up, norm.y, saved.pre);
    mlp_forward(stream, layer.mlp, norm.y, saved, branch, {}, {.up = false});
    add_adapters(stream, index, spec::Projection::down, saved.act, branch);
  }
  end_decoded_branch(stream, layer, layer.mlp_norm, branch);
}

void PagedDecoder::add_adapters(engine::Stream& stream, size_t index, spec::Projection projection,
                                const engine::Matrix& x, const engine::Matrix& y) const {
  for (const AdaptedRows& rows : adapted_) {
    adapter_forward(stream, rows.adapter->terms(static_cast<int64_t>(index), projection),
                    x.slice_rows(rows.first, rows.count), y.slice_rows(rows.first, rows.count),
                    adapter_buffers_);
  }
}

void PagedDecoder::forward(engine::Stream& stream, std::span<const Piece> pieces) {
  int32_t* token = row_tokens_.as<int32_t>();
  int32_t* position = row_positions_.as<int32_t>();
  int32_t* start = row_starts_.as<int32_t>();
  int64_t count = 0;
  adapted_.clear();
  for (const Piece& piece : pieces) {
    if (piece.adapter != nullptr) {
      TUTTI_CHECK(piece.adapter->largest_rank() <= sizes_.adapter_rank,
                  "decode: an adapter of rank {}, not {}", piece.adapter->largest_rank(),
                  sizes_.adapter_rank);
      const auto length = static_cast<int64_t>(piece.tokens.size());
      if (!adapted_.empty() && adapted_.back().adapter == piece.adapter &&
          adapted_.back().first + adapted_.back().count == count) {
        adapted_.back().count += length;
      } else {
        adapted_.push_back({count, length, piece.adapter});
      }
    }
    TUTTI_CHECK(
        !piece.tokens.empty() && count + static_cast<int64_t>(piece.tokens.size()) <= sizes_.rows,
        "decode: {} + {} rows in a pass of {}", count, piece.tokens.size(), sizes_.rows);
    for (size_t i = 0; i < piece.tokens.size(); ++i, ++count) {
      const int64_t at = piece.past + static_cast<int64_t>(i);
      token[count] = piece.tokens[i];
      position[count] = static_cast<int32_t>(at);
      start[count] = static_cast<int32_t>(std::max<int64_t>(0, at - model_.window + 1));
    }
  }
  TUTTI_CHECK(count > 0, "decode: no tokens");
  plan_attention(pieces);
  const engine::Vector ids = engine::vector(token, DType::i32, count);
  const engine::Vector at = engine::vector(position, DType::i32, count);
  embedding_forward(stream, embedding_, ids, {count, at, 0}, rows(residual_, count));
  for (size_t i = 0; i < blocks_.size(); ++i) run_block(stream, i, pieces, count, i > 0);
  NormSaved norm;
  norm.residual = rows(residual_, count);
  norm.y = rows(y_, count);
  norm_forward(stream, final_norm_, norm.residual, rows(branch_, count), norm);
}

engine::Matrix PagedDecoder::logits(engine::Stream& stream, std::span<const int64_t> chosen) {
  const auto count = static_cast<int64_t>(chosen.size());
  TUTTI_CHECK(count > 0 && count <= sizes_.logit_rows, "decode: logits of {} rows of {}", count,
              sizes_.logit_rows);
  // The last branch has been added up, so its memory is free for the rows.
  for (int64_t i = 0; i < count; ++i) {
    const engine::Matrix from = y_.slice_rows(chosen[static_cast<size_t>(i)], 1);
    std::memcpy(branch_.slice_rows(i, 1).data, from.data, static_cast<size_t>(from.bytes()));
  }
  head_logits(stream, head_, rows(branch_, count), rows(logits_, count));
  return rows(logits_, count).slice_cols(0, head_.vocabulary);
}

}  // namespace tutti::model
