#include "tutti/model/attention.h"

#include <array>

namespace tutti::model {
namespace {

// Query and key heads are adjacent columns of qkv, so one call rotates both.
void rotate(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
            engine::Matrix qkv, bool inverse) {
  if (!layer.rope_frequency) return;
  stream.ops().rope(stream, {.x = qkv,
                             .heads = layer.heads + layer.kv_heads,
                             .head_dim = layer.head_dim,
                             .rotated = layer.rotated,
                             .amplitude = layer.rope_amplitude,
                             .sequence = shape.tokens,
                             .inverse_frequency = layer.rope_frequency,
                             .positions = shape.positions,
                             .inverse = inverse});
}

// For queries or keys: their columns of qkv, of the norm's input, and of the norm's statistics.
struct NormedColumns {
  const NormWeights& weights;
  int64_t first, width;
  int64_t groups, first_group;
};

std::array<NormedColumns, 2> normed_columns(const AttentionLayer& layer) {
  const int64_t queries = layer.heads * layer.head_dim;
  const int64_t keys = layer.kv_heads * layer.head_dim;
  const int64_t query_groups = queries / layer.norms.query.weight.count;
  const int64_t key_groups = keys / layer.norms.key.weight.count;
  return {{{layer.norms.query, 0, queries, query_groups, 0},
           {layer.norms.key, queries, keys, key_groups, query_groups}}};
}

void norm_query_key(engine::Stream& stream, const AttentionLayer& layer,
                    const AttentionSaved& saved) {
  if (!layer.norms) return;
  stream.ops().copy(stream,
                    {.x = saved.qkv.slice_cols(0, saved.query_key.cols), .out = saved.query_key});
  for (const NormedColumns& part : normed_columns(layer)) {
    stream.ops().rms_norm_forward(stream,
                                  {.x = saved.query_key.slice_cols(part.first, part.width),
                                   .groups = part.groups,
                                   .weight = part.weights.weight,
                                   .offset = layer.norms.offset,
                                   .epsilon = layer.norms.epsilon,
                                   .y = saved.qkv.slice_cols(part.first, part.width),
                                   .rstd = saved.rstd.slice_cols(part.first_group, part.groups)});
  }
}

void norm_query_key_backward(engine::Stream& stream, const AttentionLayer& layer,
                             const AttentionSaved& saved, const AttentionWork& work) {
  if (!layer.norms) return;
  for (const NormedColumns& part : normed_columns(layer)) {
    const engine::Matrix gradient = work.d_qkv.slice_cols(part.first, part.width);
    stream.ops().rms_norm_backward(stream,
                                   {.dy = gradient,
                                    .x = saved.query_key.slice_cols(part.first, part.width),
                                    .groups = part.groups,
                                    .weight = part.weights.weight,
                                    .offset = layer.norms.offset,
                                    .rstd = saved.rstd.slice_cols(part.first_group, part.groups),
                                    .dx = gradient,
                                    .beta = work.norm_beta,
                                    .d_weight = part.weights.d_weight});
  }
}

// Attention sinks: the softmax logit of each head without a key, and its gradient.
void add_sinks(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
               const AttentionSaved& saved) {
  if (!layer.sinks) return;
  stream.ops().attention_sink_forward(stream, {.batch = shape.sequences,
                                               .rows = shape.tokens,
                                               .heads = layer.heads,
                                               .head_dim = layer.head_dim,
                                               .sinks = layer.sinks,
                                               .out = saved.out,
                                               .lse = saved.lse});
}
void sinks_backward(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
                    const AttentionSaved& saved, const AttentionWork& work) {
  if (!layer.d_sinks) return;
  stream.ops().attention_sink_backward(stream, {.batch = shape.sequences,
                                                .rows = shape.tokens,
                                                .heads = layer.heads,
                                                .sinks = layer.sinks,
                                                .lse = saved.lse,
                                                .delta = work.delta,
                                                .beta = work.norm_beta,
                                                .d_sinks = layer.d_sinks});
}

engine::Vector elements(const engine::Matrix& matrix) {
  return engine::vector(matrix.data, matrix.dtype, matrix.rows * matrix.cols);
}

// Sends `out` to the next rank of the ring, receives `in` from the previous one.
comm::Group::Shifted exchange(engine::Stream& stream, comm::Group& group, const engine::Matrix& out,
                              const engine::Matrix& in) {
  return group.shift(stream, elements(out), elements(in));
}

// The rank whose keys are here after `step` steps.
int64_t key_block(const comm::Group& group, int64_t step) {
  return (group.rank() + group.size() - step) % group.size();
}

template <typename Args>
Args block_args(const AttentionLayer& layer, const BatchShape& shape, const AttentionSaved& saved,
                int64_t step) {
  const int64_t width = layer.kv_heads * layer.head_dim;
  const engine::Matrix& key_values = layer.ring.key_values[step % 2];
  Args args;
  args.batch = shape.sequences;
  args.rows = shape.tokens;
  args.heads = layer.heads;
  args.kv_heads = layer.kv_heads;
  args.head_dim = layer.head_dim;
  args.scale = layer.scale;
  args.softcap = layer.softcap;
  args.blocks = layer.ring.group->size();
  args.query_block = layer.ring.group->rank();
  args.key_block = key_block(*layer.ring.group, step);
  args.q = saved.qkv.slice_cols(0, layer.heads * layer.head_dim);
  args.keys = key_values.slice_cols(0, width);
  args.values = key_values.slice_cols(width, width);
  args.lse = saved.lse;
  if (const engine::Vector starts = starts_of(layer, shape)) {
    args.starts = engine::vector(starts.as<int32_t>() + args.key_block * shape.rows(), DType::i32,
                                 shape.rows());
  }
  return args;
}

engine::Matrix key_value_columns(const AttentionLayer& layer, const engine::Matrix& qkv) {
  return qkv.slice_cols(layer.heads * layer.head_dim, 2 * layer.kv_heads * layer.head_dim);
}

// Each step attends to the current keys while they are sent on. Every rank processes the blocks in
// its own, fixed order.
void ring_forward(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
                  const AttentionSaved& saved) {
  const AttentionRing& ring = layer.ring;
  const engine::OpTable& ops = stream.ops();
  const int64_t steps = ring.group->size();
  ops.copy(stream, {.x = key_value_columns(layer, saved.qkv), .out = ring.key_values[0]});
  for (int64_t step = 0; step < steps; ++step) {
    const bool last = step + 1 == steps;
    comm::Group::Shifted exchanged;
    if (!last) {
      exchanged =
          exchange(stream, *ring.group, ring.key_values[step % 2], ring.key_values[(step + 1) % 2]);
    }
    auto args = block_args<engine::AttentionBlockForwardArgs>(layer, shape, saved, step);
    args.first = step == 0;
    args.total = ring.total;
    ops.attention_block_forward(stream, args);
    exchanged.wait(stream);
  }
  ops.copy(stream, {.x = ring.total, .out = saved.out});
}

// Keys and values travel as in the forward pass. The gradients of a rank's keys and values start at
// the next rank, accumulate the share of each rank, and finally return, where the rank's own share
// is added.
void ring_backward(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
                   const AttentionSaved& saved, const AttentionWork& work) {
  const AttentionRing& ring = layer.ring;
  const engine::OpTable& ops = stream.ops();
  const int64_t steps = ring.group->size();
  const int64_t width = layer.kv_heads * layer.head_dim;
  ops.copy(stream, {.x = key_value_columns(layer, saved.qkv), .out = ring.key_values[0]});
  for (int64_t step = 0; step < steps; ++step) {
    const bool last = step + 1 == steps;
    comm::Group::Shifted exchanged;
    if (!last) {
      exchanged =
          exchange(stream, *ring.group, ring.key_values[step % 2], ring.key_values[(step + 1) % 2]);
    }
    const engine::Matrix& d_kv = step == 0 ? ring.d_own : ring.d_key_values[step % 2];
    auto args = block_args<engine::AttentionBlockBackwardArgs>(layer, shape, saved, step);
    args.out = saved.out;
    args.d_out = work.d_out;
    args.delta = work.delta;
    args.add_queries = step > 0;
    args.add_keys = step > 1;
    args.d_q = ring.total;
    args.d_keys = d_kv.slice_cols(0, width);
    args.d_values = d_kv.slice_cols(width, width);
    ops.attention_block_backward(stream, args);
    exchanged.wait(stream);
    if (step == 0) continue;
    exchange(stream, *ring.group, d_kv, ring.d_key_values[(step + 1) % 2]).wait(stream);
  }
  ops.copy(stream,
           {.x = ring.total, .out = work.d_qkv.slice_cols(0, layer.heads * layer.head_dim)});
  ops.copy(stream, {.x = ring.d_own,
                    .plus = ring.d_key_values[steps % 2],
                    .out = key_value_columns(layer, work.d_qkv)});
}

}  // namespace

bool reads_input(const AttentionLayer& layer, const AttentionSteps& steps) {
  return layer.latent ? latent_reads_input(layer.latent, steps) : steps.qkv;
}

void attention_forward(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                       engine::Matrix x, const AttentionSaved& saved, engine::Matrix branch,
                       const AdapterPass& pass, AttentionSteps steps) {
  if (layer.latent) {
    latent_forward(stream, layer, shape, x, saved, steps);
  } else if (steps.qkv) {
    linear_forward(stream, layer.qkv, x, saved.qkv, pass, saved.x_amax);
    norm_query_key(stream, layer, saved);
    rotate(stream, layer, shape, saved.qkv, false);
  }
  if (steps.core && layer.ring.group != nullptr) {
    ring_forward(stream, layer, shape, saved);
  } else if (steps.core) {
    stream.ops().attention_forward(stream, {.batch = shape.sequences,
                                            .sequence = shape.tokens,
                                            .heads = layer.heads,
                                            .kv_heads = layer.kv_heads,
                                            .head_dim = layer.head_dim,
                                            .value_dim = layer.latent.value_dim,
                                            .scale = layer.scale,
                                            .softcap = layer.softcap,
                                            .qkv = saved.qkv,
                                            .out = saved.out,
                                            .lse = saved.lse,
                                            .starts = starts_of(layer, shape)});
  }
  if (steps.core) add_sinks(stream, layer, shape, saved);
  if (steps.output) linear_forward(stream, layer.output, saved.out, branch, pass, saved.out_amax);
}

void attention_backward_input(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                              const AttentionSaved& saved, engine::Matrix d_branch,
                              const AttentionWork& work, engine::Matrix dx, const AdapterPass& pass,
                              const engine::Magnitude& d_branch_amax) {
  linear_backward_input(stream, layer.output, d_branch, work.d_out, pass, d_branch_amax);
  if (!work.d_out) return;
  if (layer.ring.group != nullptr) {
    ring_backward(stream, layer, shape, saved, work);
  } else {
    stream.ops().attention_backward(stream, {.batch = shape.sequences,
                                             .sequence = shape.tokens,
                                             .heads = layer.heads,
                                             .kv_heads = layer.kv_heads,
                                             .head_dim = layer.head_dim,
                                             .value_dim = layer.latent.value_dim,
                                             .scale = layer.scale,
                                             .softcap = layer.softcap,
                                             .qkv = saved.qkv,
                                             .out = saved.out,
                                             .d_out = work.d_out,
                                             .lse = saved.lse,
                                             .delta = work.delta,
                                             .d_qkv = work.d_qkv,
                                             .starts = starts_of(layer, shape)});
  }
  if (layer.latent) return latent_backward_input(stream, layer, shape, saved, work, dx);
  sinks_backward(stream, layer, shape, saved, work);
  rotate(stream, layer, shape, work.d_qkv, true);
  norm_query_key_backward(stream, layer, saved, work);
  linear_backward_input(stream, layer.qkv, work.d_qkv, dx, pass);
}

void attention_backward_weight(engine::Stream& stream, const AttentionLayer& layer,
                               engine::Matrix x, const AttentionSaved& saved,
                               engine::Matrix d_branch, const AttentionWork& work, float beta,
                               const AdapterPass& pass) {
  linear_backward_weight(stream, layer.output, saved.out, d_branch, beta, pass,
                         engine::known_magnitude(saved.out_amax.value));
  if (!work.d_qkv) return;
  if (layer.latent) return latent_backward_weight(stream, layer, x, saved, work, beta);
  linear_backward_weight(stream, layer.qkv, x, work.d_qkv, beta, pass, saved.x_amax);
}

}  // namespace tutti::model
