#include "tutti/model/latent_decode.h"

#include <cmath>

namespace tutti::model {
namespace {

// In place: nothing is kept for a backward pass.
void norm_rows(engine::Stream& stream, const LatentLayer& layer, const NormWeights& norm,
               engine::Matrix x) {
  stream.ops().rms_norm_forward(
      stream,
      {.x = x, .weight = norm.weight, .offset = layer.offset, .epsilon = layer.epsilon, .y = x});
}

// Rows of the projection up that make the keys of head `head`, and those that make its values.
engine::Matrix key_weight(const LatentLayer& layer, int64_t head) {
  return layer.kv_up.weight.slice_rows(head * (layer.nope_dim + layer.value_dim), layer.nope_dim);
}
engine::Matrix value_weight(const LatentLayer& layer, int64_t head) {
  return layer.kv_up.weight.slice_rows(head * (layer.nope_dim + layer.value_dim) + layer.nope_dim,
                                       layer.value_dim);
}

}  // namespace

LatentRows LatentRows::first(int64_t count) const {
  LatentRows rows = *this;
  for (engine::Matrix* x : {&rows.query_down, &rows.kv, &rows.queries, &rows.absorbed, &rows.out}) {
    if (*x) *x = x->slice_rows(0, count);
  }
  return rows;
}

float latent_scale(const AttentionLayer& layer) {
  if (layer.scale > 0) return layer.scale;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(layer.head_dim)));
}

void latent_decode_rows(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix x,
                        engine::Vector positions, const LatentRows& rows) {
  const LatentLayer& latent = layer.latent;
  const int64_t rank = latent.rank, rope = latent.rope_dim, dim = layer.head_dim;
  linear_forward(stream, latent.kv_down, x, rows.kv);
  norm_rows(stream, latent, latent.kv_norm, rows.kv.slice_cols(rope, rank));
  latent_rotate(stream, layer, rows.kv.slice_cols(0, rope), 1, rope, x.rows, positions);
  engine::Matrix input = x;
  if (latent.compresses_queries()) {
    linear_forward(stream, latent.query_down, x, rows.query_down);
    norm_rows(stream, latent, latent.query_norm, rows.query_down);
    input = rows.query_down;
  }
  linear_forward(stream, latent.query, input, rows.queries);
  latent_rotate(stream, layer, rows.queries, layer.heads, dim, x.rows, positions);
  for (int64_t head = 0; head < layer.heads; ++head) {
    const engine::Matrix query = rows.queries.slice_cols(head * dim, dim);
    const engine::Matrix out = rows.absorbed.slice_cols(head * (rope + rank), rope + rank);
    stream.ops().gemm(stream, {.a = query.slice_cols(rope, latent.nope_dim),
                               .b = key_weight(latent, head),
                               .c = out.slice_cols(rope, rank)});
    stream.ops().copy(stream, {.x = query.slice_cols(0, rope), .out = out.slice_cols(0, rope)});
  }
}

void latent_decode_output(engine::Stream& stream, const AttentionLayer& layer,
                          const LatentRows& rows, engine::Matrix out) {
  const LatentLayer& latent = layer.latent;
  for (int64_t head = 0; head < layer.heads; ++head) {
    stream.ops().gemm(stream, {.a = rows.out.slice_cols(head * latent.rank, latent.rank),
                               .b = value_weight(latent, head),
                               .c = out.slice_cols(head * latent.value_dim, latent.value_dim),
                               .transpose_b = true});
  }
}

}  // namespace tutti::model
