#include "tutti/model/latent_attention.h"

#include "tutti/model/attention.h"

namespace tutti::model {
namespace {

engine::Matrix column(const engine::Vector& v) {
  return v ? engine::matrix(v.data, v.dtype, v.count, 1) : engine::Matrix{};
}

void norm_compressed(engine::Stream& stream, const LatentLayer& layer, const NormWeights& norm,
                     engine::Matrix x, engine::Vector rstd, engine::Matrix y) {
  stream.ops().rms_norm_forward(stream, {.x = x,
                                         .weight = norm.weight,
                                         .offset = layer.offset,
                                         .epsilon = layer.epsilon,
                                         .y = y,
                                         .rstd = column(rstd)});
}

void norm_compressed_backward(engine::Stream& stream, const LatentLayer& layer,
                              const NormWeights& norm, engine::Matrix x, engine::Vector rstd,
                              float beta, engine::Matrix gradient) {
  stream.ops().rms_norm_backward(stream, {.dy = gradient,
                                          .x = x,
                                          .weight = norm.weight,
                                          .offset = layer.offset,
                                          .rstd = column(rstd),
                                          .dx = gradient,
                                          .beta = beta,
                                          .d_weight = norm.d_weight});
}

// dx += dy W
void add_input_gradient(engine::Stream& stream, const Linear& layer, engine::Matrix dy,
                        engine::Matrix dx) {
  stream.ops().gemm(stream, {.a = dy, .b = layer.weight, .c = dx, .beta = 1});
}

engine::Matrix compressed(const LatentLayer& layer, const engine::Matrix& rows) {
  return rows.slice_cols(layer.rope_dim, layer.rank);
}
engine::Matrix shared_key(const LatentLayer& layer, const engine::Matrix& rows) {
  return rows.slice_cols(0, layer.rope_dim);
}

}  // namespace

bool latent_reads_input(const LatentLayer& layer, const AttentionSteps& steps) {
  return steps.down || (steps.qkv && !layer.compresses_queries());
}

LatentColumns latent_columns(const AttentionLayer& layer, const engine::Matrix& qkv) {
  const int64_t keys = layer.heads * layer.head_dim;
  return {qkv.slice_cols(0, keys), qkv.slice_cols(keys, keys),
          qkv.slice_cols(2 * keys, layer.heads * layer.latent.value_dim)};
}

void latent_rotate(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix x,
                   int64_t heads, int64_t head_dim, int64_t sequence, engine::Vector positions,
                   bool inverse) {
  stream.ops().rope(stream, {.x = x,
                             .heads = heads,
                             .head_dim = head_dim,
                             .rotated = layer.latent.rope_dim,
                             .amplitude = layer.rope_amplitude,
                             .sequence = sequence,
                             .inverse_frequency = layer.rope_frequency,
                             .positions = positions,
                             .inverse = inverse});
}

void latent_forward(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
                    engine::Matrix x, const AttentionSaved& saved, const AttentionSteps& steps) {
  const LatentLayer& latent = layer.latent;
  const LatentSaved& kept = saved.latent;
  if (steps.down) {
    linear_forward(stream, latent.kv_down, x, kept.kv_down);
    norm_compressed(stream, latent, latent.kv_norm, compressed(latent, kept.kv_down), kept.kv_rstd,
                    compressed(latent, kept.kv_y));
    const engine::Matrix key = shared_key(latent, kept.kv_y);
    stream.ops().copy(stream, {.x = shared_key(latent, kept.kv_down), .out = key});
    latent_rotate(stream, layer, key, 1, latent.rope_dim, shape.tokens, shape.positions);
    if (latent.compresses_queries()) {
      linear_forward(stream, latent.query_down, x, kept.query_down);
      norm_compressed(stream, latent, latent.query_norm, kept.query_down, kept.query_rstd,
                      kept.query_y);
    }
  }
  if (!steps.qkv) return;
  const LatentColumns columns = latent_columns(layer, saved.qkv);
  linear_forward(stream, latent.query, latent.compresses_queries() ? kept.query_y : x,
                 columns.queries);
  latent_rotate(stream, layer, columns.queries, layer.heads, layer.head_dim, shape.tokens,
                shape.positions);
  linear_forward(stream, latent.kv_up, compressed(latent, kept.kv_y), latent.up);
  stream.ops().latent_heads(stream, {.heads = layer.heads,
                                     .shared_dim = latent.rope_dim,
                                     .head_dim = latent.nope_dim,
                                     .value_dim = latent.value_dim,
                                     .up = latent.up,
                                     .shared = shared_key(latent, kept.kv_y),
                                     .keys = columns.keys,
                                     .values = columns.values});
}

void latent_backward_input(engine::Stream& stream, const AttentionLayer& layer,
                           const BatchShape& shape, const AttentionSaved& saved,
                           const AttentionWork& work, engine::Matrix dx) {
  const LatentLayer& latent = layer.latent;
  const LatentSaved& kept = saved.latent;
  const LatentColumns d = latent_columns(layer, work.d_qkv);
  latent_rotate(stream, layer, d.queries, layer.heads, layer.head_dim, shape.tokens,
                shape.positions, true);
  const engine::Matrix d_kv = work.latent.d_kv_down;
  const engine::Matrix d_key = shared_key(latent, d_kv);
  stream.ops().latent_heads_backward(stream, {.heads = layer.heads,
                                              .shared_dim = latent.rope_dim,
                                              .head_dim = latent.nope_dim,
                                              .value_dim = latent.value_dim,
                                              .d_keys = d.keys,
                                              .d_values = d.values,
                                              .d_up = latent.up,
                                              .d_shared = d_key});
  latent_rotate(stream, layer, d_key, 1, latent.rope_dim, shape.tokens, shape.positions, true);
  linear_backward_input(stream, latent.kv_up, latent.up, compressed(latent, d_kv));
  norm_compressed_backward(stream, latent, latent.kv_norm, compressed(latent, kept.kv_down),
                           kept.kv_rstd, work.norm_beta, compressed(latent, d_kv));
  linear_backward_input(stream, latent.kv_down, d_kv, dx);
  if (!latent.compresses_queries()) {
    add_input_gradient(stream, latent.query, d.queries, dx);
    return;
  }
  const engine::Matrix d_query = work.latent.d_query_down;
  linear_backward_input(stream, latent.query, d.queries, d_query);
  norm_compressed_backward(stream, latent, latent.query_norm, kept.query_down, kept.query_rstd,
                           work.norm_beta, d_query);
  add_input_gradient(stream, latent.query_down, d_query, dx);
}

void latent_backward_weight(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix x,
                            const AttentionSaved& saved, const AttentionWork& work, float beta) {
  const LatentLayer& latent = layer.latent;
  const LatentSaved& kept = saved.latent;
  const bool compresses = latent.compresses_queries();
  linear_backward_weight(stream, latent.kv_up, compressed(latent, kept.kv_y), latent.up, beta);
  linear_backward_weight(stream, latent.query, compresses ? kept.query_y : x,
                         latent_columns(layer, work.d_qkv).queries, beta);
  linear_backward_weight(stream, latent.kv_down, x, work.latent.d_kv_down, beta);
  if (compresses) {
    linear_backward_weight(stream, latent.query_down, x, work.latent.d_query_down, beta);
  }
}

}  // namespace tutti::model
