// Attention of PagedDecoder: its calls for a pass, and a block's rows from the norm to the output
// of attention.
#include <algorithm>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/model/paged_decode.h"

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

}  // namespace

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

// The new keys and values of a block to the pages of their texts. No values: they are columns of
// the keys.
void PagedDecoder::store_rows(size_t index, std::span<const Piece> pieces,
                              const engine::Matrix& keys, const engine::Matrix& values) {
  const auto store = [](const engine::Matrix& from, int64_t row, engine::Matrix& cache,
                        int64_t to) {
    std::memcpy(cache.slice_rows(to, 1).data, from.slice_rows(row, 1).data,
                static_cast<size_t>(from.cols * dtype_bytes(from.dtype)));
  };
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const auto count = static_cast<int64_t>(piece.tokens.size());
    for (int64_t i = 0; i < count; ++i, ++row) {
      const int64_t at = piece.past + i;
      const int64_t page = piece.pages[static_cast<size_t>(at / sizes_.page_rows)];
      const int64_t to = page * sizes_.page_rows + at % sizes_.page_rows;
      store(keys, row, keys_[index], to);
      if (values) store(values, row, values_[index], to);
    }
  }
}

void PagedDecoder::attend(engine::Stream& stream, size_t index) {
  const AttentionLayer& attention = blocks_[index].attention;
  const LatentLayer& latent = attention.latent;
  const int64_t head_dim = latent ? latent.rope_dim + latent.rank : attention.head_dim;
  const engine::Matrix queries =
      latent ? latent_.absorbed : qkv_.slice_cols(0, attention.heads * head_dim);
  for (const Attention& call : attentions_) {
    const int64_t count = call.texts * call.queries;
    const engine::Matrix out = (latent ? latent_.out : attention_).slice_rows(call.first, count);
    const engine::Vector lse = attention.sinks
                                   ? engine::vector(lse_.data, DType::f32, count * attention.heads)
                                   : engine::Vector{};
    stream.ops().attention_decode(
        stream,
        {.batch = call.texts,
         .queries = call.queries,
         .past = call.past,
         .heads = attention.heads,
         .kv_heads = latent ? 1 : attention.kv_heads,
         .head_dim = head_dim,
         .value_dim = latent ? latent.rank : 0,
         .capacity = call.pages * sizes_.page_rows,
         .scale = latent ? latent_scale(attention) : attention.scale,
         .softcap = attention.softcap,
         .q = queries.slice_rows(call.first, count),
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

void PagedDecoder::attend_grouped(engine::Stream& stream, size_t index,
                                  std::span<const Piece> pieces, int64_t count) {
  const AttentionLayer& attention = blocks_[index].attention;
  const int64_t query_width = attention.heads * attention.head_dim;
  const int64_t kv_width = attention.kv_heads * attention.head_dim;
  const engine::Matrix qkv = rows(qkv_, count);
  linear_forward(stream, attention.qkv, rows(y_, count), qkv);
  add_adapters(stream, index, spec::Projection::qkv, rows(y_, count), qkv);
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
  store_rows(index, pieces, qkv.slice_cols(query_width, kv_width),
             qkv.slice_cols(query_width + kv_width, kv_width));
  attend(stream, index);
}

void PagedDecoder::attend_latent(engine::Stream& stream, size_t index,
                                 std::span<const Piece> pieces, int64_t count) {
  const AttentionLayer& attention = blocks_[index].attention;
  const LatentRows latent = latent_.first(count);
  latent_decode_rows(stream, attention, rows(y_, count),
                     engine::vector(row_positions_.data, DType::i32, count), latent);
  store_rows(index, pieces, latent.kv, {});
  attend(stream, index);
  latent_decode_output(stream, attention, latent, rows(attention_, count));
}

}  // namespace tutti::model
