#include "tutti/model/paged_decode.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/model/rope_frequency.h"
#include "tutti/model/stage.h"

namespace tutti::model {
namespace {

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
      keys_.push_back(carver.take(compute, sizes.pages * sizes.page_rows, kv_width));
      values_.push_back(carver.take(compute, sizes.pages * sizes.page_rows, kv_width));
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
  }
}

int64_t PagedDecoder::cache_row_bytes(const spec::ModelConfig& model, DType compute) {
  return model.layers * 2 * model.kv_heads * model.head_dim * dtype_bytes(compute);
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

// The new keys and values of a block to the pages of their texts.
void PagedDecoder::store_rows(size_t index, std::span<const Piece> pieces, int64_t query_width,
                              int64_t kv_width) {
  const auto row_bytes = static_cast<size_t>(kv_width * dtype_bytes(compute_));
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const auto count = static_cast<int64_t>(piece.tokens.size());
    for (int64_t i = 0; i < count; ++i, ++row) {
      const int64_t at = piece.past + i;
      const int64_t page = piece.pages[static_cast<size_t>(at / sizes_.page_rows)];
      const int64_t to = page * sizes_.page_rows + at % sizes_.page_rows;
      const engine::Matrix from = qkv_.slice_rows(row, 1);
      std::memcpy(keys_[index].slice_rows(to, 1).data, from.slice_cols(query_width, kv_width).data,
                  row_bytes);
      std::memcpy(values_[index].slice_rows(to, 1).data,
                  from.slice_cols(query_width + kv_width, kv_width).data, row_bytes);
    }
  }
}

void PagedDecoder::attend(engine::Stream& stream, size_t index) {
  const AttentionLayer& attention = blocks_[index].attention;
  for (const Attention& call : attentions_) {
    const int64_t count = call.texts * call.queries;
    const engine::Matrix q =
        qkv_.slice_rows(call.first, count).slice_cols(0, attention.heads * attention.head_dim);
    const engine::Matrix out = attention_.slice_rows(call.first, count);
    const engine::Vector lse = attention.sinks
                                   ? engine::vector(lse_.data, DType::f32, count * attention.heads)
                                   : engine::Vector{};
    stream.ops().attention_decode(
        stream,
        {.batch = call.texts,
         .queries = call.queries,
         .past = call.past,
         .heads = attention.heads,
         .kv_heads = attention.kv_heads,
         .head_dim = attention.head_dim,
         .capacity = call.pages * sizes_.page_rows,
         .scale = attention.scale,
         .softcap = attention.softcap,
         .q = q,
         .keys = keys_[index],
         .values = values_[index],
         .out = out,
         .starts = attention.windowed
                       ? engine::vector(row_starts_.as<int32_t>() + call.first, DType::i32, count)
                       : engine::Vector{},
         .lse = lse,
         .pasts = engine::vector(pasts_.data() + call.first_text, DType::i32, call.texts),
         .pages = engine::vector(page_tables_.data() + call.first_page, DType::i32,
                                 call.texts * call.pages),
         .page_rows = sizes_.page_rows});
    if (!attention.sinks) continue;
    stream.ops().attention_sink_forward(stream, {.batch = call.texts,
                                                 .rows = call.queries,
                                                 .heads = attention.heads,
                                                 .head_dim = attention.head_dim,
                                                 .sinks = attention.sinks,
                                                 .out = out,
                                                 .lse = lse});
  }
}

void PagedDecoder::run_block(engine::Stream& stream, size_t index, std::span<const Piece> pieces,
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
  store_rows(index, pieces, query_width, kv_width);
  attend(stream, index);
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

// Which calls of attention the pieces are: single rows that follow each other are one, as texts of
// one row each; a piece of several rows is one of its own.
void PagedDecoder::plan_attention(std::span<const Piece> pieces) {
  attentions_.clear();
  pasts_.clear();
  page_tables_.clear();
  const auto pages_of = [&](const Piece& piece) {
    return (piece.past + static_cast<int64_t>(piece.tokens.size()) + sizes_.page_rows - 1) /
           sizes_.page_rows;
  };
  int64_t row = 0;
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i + 1;
    if (pieces[i].tokens.size() == 1) {
      while (end < pieces.size() && pieces[end].tokens.size() == 1) ++end;
    }
    Attention call;
    call.first = row;
    call.texts = static_cast<int64_t>(end - i);
    call.queries = static_cast<int64_t>(pieces[i].tokens.size());
    call.first_text = static_cast<int64_t>(pasts_.size());
    call.first_page = static_cast<int64_t>(page_tables_.size());
    for (size_t j = i; j < end; ++j) {
      call.past = std::max(call.past, pieces[j].past);
      call.pages = std::max(call.pages, pages_of(pieces[j]));
    }
    for (size_t j = i; j < end; ++j) {
      const Piece& piece = pieces[j];
      const int64_t used = pages_of(piece);
      TUTTI_CHECK(used <= static_cast<int64_t>(piece.pages.size()),
                  "decode: {} pages of {} rows for {} + {}", piece.pages.size(), sizes_.page_rows,
                  piece.past, piece.tokens.size());
      pasts_.push_back(static_cast<int32_t>(piece.past));
      page_tables_.insert(page_tables_.end(), piece.pages.begin(), piece.pages.begin() + used);
      page_tables_.resize(page_tables_.size() + static_cast<size_t>(call.pages - used));
      row += static_cast<int64_t>(piece.tokens.size());
    }
    attentions_.push_back(call);
    i = end;
  }
}

void PagedDecoder::forward(engine::Stream& stream, std::span<const Piece> pieces) {
  int32_t* token = row_tokens_.as<int32_t>();
  int32_t* position = row_positions_.as<int32_t>();
  int32_t* start = row_starts_.as<int32_t>();
  int64_t count = 0;
  for (const Piece& piece : pieces) {
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
