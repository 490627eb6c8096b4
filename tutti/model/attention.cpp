#include "tutti/model/attention.h"

namespace tutti::model {
namespace {

// Query and key heads are adjacent columns of qkv, so one call turns both.
void rotate(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
            engine::Matrix qkv, bool inverse) {
  if (!layer.rope_frequency) return;
  stream.ops().rope(stream, {.x = qkv,
                             .heads = layer.heads + layer.kv_heads,
                             .head_dim = layer.head_dim,
                             .sequence = shape.tokens,
                             .inverse_frequency = layer.rope_frequency,
                             .positions = shape.positions,
                             .inverse = inverse});
}

}  // namespace

void attention_forward(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                       engine::Matrix x, const AttentionSaved& saved, engine::Matrix branch,
                       const AdapterPass& pass, AttentionSteps steps) {
  if (steps.qkv) {
    linear_forward(stream, layer.qkv, x, saved.qkv, pass);
    rotate(stream, layer, shape, saved.qkv, false);
  }
  if (steps.core) {
    stream.ops().attention_forward(stream, {.batch = shape.sequences,
                                            .sequence = shape.tokens,
                                            .heads = layer.heads,
                                            .kv_heads = layer.kv_heads,
                                            .head_dim = layer.head_dim,
                                            .qkv = saved.qkv,
                                            .out = saved.out,
                                            .lse = saved.lse,
                                            .starts = shape.starts});
  }
  if (steps.output) linear_forward(stream, layer.output, saved.out, branch, pass);
}

void attention_backward_input(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                              const AttentionSaved& saved, engine::Matrix d_branch,
                              const AttentionWork& work, engine::Matrix dx,
                              const AdapterPass& pass) {
  linear_backward_input(stream, layer.output, d_branch, work.d_out, pass);
  if (!work.d_out) return;
  stream.ops().attention_backward(stream, {.batch = shape.sequences,
                                           .sequence = shape.tokens,
                                           .heads = layer.heads,
                                           .kv_heads = layer.kv_heads,
                                           .head_dim = layer.head_dim,
                                           .qkv = saved.qkv,
                                           .out = saved.out,
                                           .d_out = work.d_out,
                                           .lse = saved.lse,
                                           .delta = work.delta,
                                           .d_qkv = work.d_qkv,
                                           .starts = shape.starts});
  rotate(stream, layer, shape, work.d_qkv, true);
  linear_backward_input(stream, layer.qkv, work.d_qkv, dx, pass);
}

void attention_backward_weight(engine::Stream& stream, const AttentionLayer& layer,
                               engine::Matrix x, const AttentionSaved& saved,
                               engine::Matrix d_branch, const AttentionWork& work, float beta,
                               const AdapterPass& pass) {
  linear_backward_weight(stream, layer.output, saved.out, d_branch, beta, pass);
  if (!work.d_qkv) return;
  linear_backward_weight(stream, layer.qkv, x, work.d_qkv, beta, pass);
}

}  // namespace tutti::model
