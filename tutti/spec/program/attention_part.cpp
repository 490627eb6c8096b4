#include <array>

#include "tutti/base/real.h"
#include "tutti/spec/program/layer_builder.h"

namespace tutti::spec {
namespace {

// Keys and values travel around the ring of ranks (AttentionRing in model/attention.h): each step
// attends to the keys that are present while they are sent on. In the backward pass their gradients
// follow them in f32.
PartOps ring_part(const LayerContext& at, int64_t kv_heads, int64_t key_dim, int64_t value_dim) {
  const int64_t rows = at.sizes.sequence / at.sizes.cp;
  const int64_t width = kv_heads * (key_dim + value_dim);
  const AttentionShape shape = {at.sizes.batch, rows,      rows, at.sizes.heads, kv_heads,
                                key_dim,        value_dim, at.c, at.packed(),    at.window};
  const auto pass_on = [&](Ops& ops, DType type) {
    for (const char* name : {"send", "receive"}) {
      ops.push_back(collective_op(name, Axis::cp, at.mesh.cp,
                                  real(at.tokens() * width) * real(dtype_bytes(type))));
    }
  };
  const int64_t query_width = at.sizes.heads * key_dim;
  const int64_t out_width = at.sizes.heads * value_dim;
  PartOps part;
  Ops& forward = part.forward;
  Ops& backward = part.backward_input;
  forward.push_back(copy_op(at.tokens(), width, at.c, at.c));
  backward.push_back(copy_op(at.tokens(), width, at.c, at.c));
  for (int64_t step = 0; step < at.mesh.cp; ++step) {
    if (step + 1 < at.mesh.cp) {
      pass_on(forward, at.c);
      pass_on(backward, at.c);
    }
    forward.push_back(attention_block_forward_op(shape, step == 0));
    backward.push_back(attention_block_backward_op(shape, step == 0, step > 1));
    if (step > 0) pass_on(backward, DType::f32);
  }
  forward.push_back(copy_op(at.tokens(), out_width, DType::f32, at.c));
  backward.push_back(copy_op(at.tokens(), query_width, DType::f32, at.c));
  backward.push_back(add_op(at.tokens(), width, DType::f32, DType::f32, at.c));
  if (at.repeats(kPartAttention | kPartCore)) part.recompute = forward;
  return part;
}

// The attention between its operands and its output, as in the profile, without sinks.
PartOps plain_core_part(const LayerContext& at, int64_t kv_heads, int64_t key_dim,
                        int64_t value_dim) {
  if (at.mesh.cp > 1 && at.profile.context_exchange == ContextExchange::ring) {
    return ring_part(at, kv_heads, key_dim, value_dim);
  }
  const int64_t queries = at.sizes.sequence / at.sizes.cp;
  const AttentionShape shape = {at.sizes.batch, queries,  at.sizes.sequence, at.sizes.heads,
                                kv_heads,       key_dim,  value_dim,         at.c,
                                at.packed(),    at.window};
  PartOps part;
  // Full buffer of keys and values that context parallel ranks all-gather.
  const double kv_bytes = real(at.sizes.batch * at.sizes.sequence * kv_heads) *
                          real(key_dim + value_dim) * real(dtype_bytes(at.c));
  const bool split = at.mesh.cp > 1 && at.profile.context_exchange == ContextExchange::gather;
  const bool exchanged = at.mesh.cp > 1 && !split;
  // All-to-all: rows of this rank with all heads become all rows with some heads, and back.
  const double rank_bytes =
      real(at.sizes.batch * queries) * real(dtype_bytes(at.c)) * real(at.sizes.heads);
  const double output_bytes = rank_bytes * real(value_dim);
  const double operand_bytes = rank_bytes * real(key_dim) + rank_bytes * real(key_dim + value_dim) *
                                                                real(kv_heads) /
                                                                real(at.sizes.heads);
  const auto exchange = [&](double bytes) {
    return collective_op("all_to_all", Axis::cp, at.mesh.cp, bytes);
  };
  if (split) part.forward.push_back(collective_op("all_gather", Axis::cp, at.mesh.cp, kv_bytes));
  if (exchanged) part.forward.push_back(exchange(operand_bytes));

  Ops core;
  if (at.profile.stores_attention_matrix) {
    const int64_t batch = shape.batch * shape.heads;
    const int64_t keys = shape.keys;
    const double matrix = real(batch) * real(queries) * real(keys);
    const double element = real(dtype_bytes(at.c));
    const GemmShape scores = {queries, keys, key_dim};
    const GemmShape values = {queries, value_dim, keys};
    core = {batched_gemm_op(batch, scores, at.c),
            memory_op("softmax", {batch * queries, keys}, 2 * matrix * element),
            memory_op("dropout", {batch * queries, keys}, 2 * matrix * element + matrix),
            batched_gemm_op(batch, values, at.c)};
    part.backward_input = {
        batched_gemm_op(batch, {keys, value_dim, queries}, at.c),
        batched_gemm_op(batch, {queries, keys, value_dim}, at.c),
        memory_op("dropout", {batch * queries, keys}, 2 * matrix * element + matrix),
        memory_op("softmax_backward", {batch * queries, keys}, 3 * matrix * element),
        batched_gemm_op(batch, {queries, key_dim, keys}, at.c),
        batched_gemm_op(batch, {keys, key_dim, queries}, at.c)};
  } else {
    core = {attention_forward_op(shape)};
    part.backward_input = {attention_backward_op(shape)};
  }
  append(part.forward, core);
  if (at.repeats(kPartAttention | kPartCore)) part.recompute = core;
  if (exchanged) {
    part.forward.push_back(exchange(output_bytes));
    part.backward_input.insert(part.backward_input.begin(), exchange(output_bytes));
    part.backward_input.push_back(exchange(operand_bytes));
  }
  if (split) {
    part.backward_input.insert(part.backward_input.begin(),
                               collective_op("all_gather", Axis::cp, at.mesh.cp, kv_bytes));
    part.backward_input.push_back(collective_op("reduce_scatter", Axis::cp, at.mesh.cp, kv_bytes));
  }
  return part;
}

PartOps core_part(const LayerContext& at, int64_t kv_heads, int64_t key_dim, int64_t value_dim) {
  PartOps part = plain_core_part(at, kv_heads, key_dim, value_dim);
  if (!at.model.attention_sinks) return part;
  const Op sinks = attention_sink_forward_op(at.tokens(), at.sizes.heads, value_dim, at.c);
  part.forward.push_back(sinks);
  if (at.repeats(kPartAttention | kPartCore)) part.recompute.push_back(sinks);
  if (!at.frozen()) {
    part.backward_input.push_back(attention_sink_backward_op(at.tokens(), at.sizes.heads, at.c));
  }
  return part;
}

struct NormedGroups {
  int64_t groups, width;
};
// Of queries and of keys.
std::array<NormedGroups, 2> normed_groups(const LayerContext& at) {
  const int64_t d = at.model.head_dim;
  if (at.model.query_key_norm == QueryKeyNorm::head) {
    return {{{at.sizes.heads, d}, {at.sizes.kv_heads, d}}};
  }
  return {{{1, at.sizes.heads * d}, {1, at.sizes.kv_heads * d}}};
}

}  // namespace

PartOps grouped_attention_part(const LayerContext& at) {
  const int64_t d = at.model.head_dim;
  const int64_t qkv = (at.sizes.heads + 2 * at.sizes.kv_heads) * d;
  const int64_t out = at.sizes.heads * d;
  const bool qkv_bias = has_bias(at.model, Projection::qkv);
  const bool output_bias = has_bias(at.model, Projection::output);
  const int64_t rotated = at.sizes.heads + at.sizes.kv_heads;
  const bool rope = at.rotated && at.model.positions == Positions::rope;
  const Op rotate =
      rope_op(at.tokens(), rotated, rotated_dims(at.model), d, at.c, at.given_positions());
  const PartOps core = core_part(at, at.sizes.kv_heads, d, d);

  Ops turned;  // operations on queries and keys after their projection
  if (at.model.query_key_norm != QueryKeyNorm::none) {
    turned.push_back(copy_op(at.tokens(), rotated * d, at.c, at.c));
    for (const auto& [groups, width] : normed_groups(at)) {
      turned.push_back(rms_norm_forward_op(at.tokens(), groups, width, at.c));
    }
  }
  if (rope) turned.push_back(rotate);
  Ops operands;
  at.enter_product(operands);
  at.projection_forward(operands, Projection::qkv, qkv, at.hidden(), qkv_bias);
  append(operands, turned);
  Ops output;
  at.projection_forward(output, Projection::output, at.hidden(), out, output_bias);
  at.leave(output);

  PartOps part;
  part.forward = operands;
  append(part.forward, core.forward);
  append(part.forward, output);
  if (at.repeats(kPartAttention)) part.recompute = operands;
  append(part.recompute, core.recompute);
  if (at.whole) append(part.recompute, output);
  if (at.alternates(kPartAttention)) {  // keys and the attention's output projection
    part.recompute.push_back(at.linear(at.tokens(), at.sizes.kv_heads * d, at.hidden(), qkv_bias));
    append(part.recompute, turned);
    part.recompute.push_back(at.linear(at.tokens(), at.hidden(), out, output_bias));
  }

  at.projection_weight(part.backward_weight, Projection::output, at.hidden(), out, output_bias);
  if (at.trains(Projection::qkv)) at.enter_product(part.backward_weight);
  at.projection_weight(part.backward_weight, Projection::qkv, qkv, at.hidden(), qkv_bias);

  at.enter_product(part.backward_input);
  at.projection_input(part.backward_input, Projection::output, at.hidden(), out);
  if (at.ends_at(Projection::output)) return part;
  append(part.backward_input, core.backward_input);
  if (rope) part.backward_input.push_back(rotate);
  if (at.model.query_key_norm != QueryKeyNorm::none) {
    for (const auto& [groups, width] : normed_groups(at)) {
      part.backward_input.push_back(
          rms_norm_backward_op(at.tokens(), groups, width, at.c, !at.frozen()));
    }
  }
  at.projection_input(part.backward_input, Projection::qkv, qkv, at.hidden());
  if (!at.ends_at(Projection::qkv)) at.leave(part.backward_input);
  return part;
}

namespace {

// As this program does it (model/latent_attention.h): rows are gathered before the projections
// down, which every tensor parallel rank computes of all rows.
PartOps executed_latent_part(const LayerContext& at) {
  const LatentAttention& latent = at.model.latent;
  const int64_t n = at.tokens(), heads = at.sizes.heads, rank = latent.key_value_rank;
  const int64_t key = key_dim(at.model), value = latent.value_head_dim;
  const int64_t query_rows = heads * key;
  const int64_t kv_rows = heads * (latent.nope_head_dim + value);
  const int64_t kv_down = rank + latent.rope_head_dim;
  const int64_t out = heads * value;
  const bool compressed = latent.query_rank > 0;
  const int64_t query_in = compressed ? latent.query_rank : at.hidden();
  const bool bias = has_bias(at.model, Projection::output);
  const bool sums = !at.frozen();
  const PartOps core = core_part(at, heads, key, value);
  const Op rotate = rope_op(n, heads, latent.rope_head_dim, key, at.c, at.given_positions());
  const Op rotate_shared = rope_op(n, 1, latent.rope_head_dim, at.c, at.given_positions());
  // Model work is done once, however many ranks repeat it.
  const auto shared = [&](Op op) {
    op.model_flops /= real(at.mesh.tp);
    return op;
  };

  Ops down = {shared(at.linear(n, kv_down, at.hidden(), false)),
              rms_norm_forward_op(n, 1, rank, at.c), copy_op(n, latent.rope_head_dim, at.c, at.c),
              rotate_shared};
  if (compressed) {
    down.push_back(shared(at.linear(n, latent.query_rank, at.hidden(), false)));
    down.push_back(rms_norm_forward_op(n, 1, latent.query_rank, at.c));
  }
  const Ops up = {at.linear(n, query_rows, query_in, false), rotate,
                  at.linear(n, kv_rows, rank, false),
                  latent_heads_op(n, heads, latent, at.c, false)};
  Ops output;
  at.projection_forward(output, Projection::output, at.hidden(), out, bias);
  at.leave(output);

  PartOps part;
  at.enter_product(part.forward);
  append(part.forward, down);
  append(part.forward, up);
  append(part.forward, core.forward);
  append(part.forward, output);
  if (at.whole || (at.repeats(kPartAttention) && !compressed)) at.enter_product(part.recompute);
  if (at.whole) append(part.recompute, down);
  if (at.repeats(kPartAttention)) append(part.recompute, up);
  append(part.recompute, core.recompute);
  if (at.whole) append(part.recompute, output);

  Ops& input = part.backward_input;
  at.enter_product(input);
  at.projection_input(input, Projection::output, at.hidden(), out);
  append(input, core.backward_input);
  input.push_back(rotate);
  input.push_back(latent_heads_op(n, heads, latent, at.c, true));
  input.push_back(rotate_shared);
  input.push_back(at.linear_input(n, kv_rows, rank));
  input.push_back(rms_norm_backward_op(n, 1, rank, at.c, sums));
  input.push_back(shared(at.linear_input(n, kv_down, at.hidden())));
  if (compressed) {
    input.push_back(at.linear_input(n, query_rows, query_in));
    input.push_back(rms_norm_backward_op(n, 1, latent.query_rank, at.c, sums));
    input.push_back(shared(at.linear_input(n, latent.query_rank, at.hidden(), Accumulate::always)));
  } else {
    input.push_back(at.linear_input(n, query_rows, at.hidden(), Accumulate::always));
  }
  at.leave(input);

  Ops& weight = part.backward_weight;
  at.projection_weight(weight, Projection::output, at.hidden(), out, bias);
  at.enter_product(weight);
  at.linear_weight(weight, n, kv_rows, rank, false);
  at.linear_weight(weight, n, query_rows, query_in, false);
  const size_t first_shared = weight.size();
  at.linear_weight(weight, n, kv_down, at.hidden(), false);
  if (compressed) at.linear_weight(weight, n, latent.query_rank, at.hidden(), false);
  for (size_t i = first_shared; i < weight.size(); ++i) weight[i] = shared(weight[i]);
  return part;
}

}  // namespace

// The projections down to the ranks run on this rank's rows (sequence parallel); the compressed
// rows are all-gathered.
PartOps latent_attention_part(const LayerContext& at) {
  if (at.profile.executable) return executed_latent_part(at);
  const LatentAttention& latent = at.model.latent;
  const int64_t key = latent.nope_head_dim + latent.rope_head_dim;
  const int64_t query_rows = at.sizes.heads * key;
  const int64_t kv_rows = at.sizes.heads * (latent.nope_head_dim + latent.value_head_dim);
  const int64_t kv_down = latent.key_value_rank + latent.rope_head_dim;
  const int64_t out = at.sizes.heads * latent.value_head_dim;
  const bool compressed = latent.query_rank > 0;
  const int64_t query_in = compressed ? latent.query_rank : at.hidden();
  const bool bias = at.model.linear_bias;
  const double gathered = real(at.tokens()) * real(query_in + kv_down) * real(dtype_bytes(at.c));
  const PartOps core = core_part(at, at.sizes.heads, key, latent.value_head_dim);
  const Op rotate =
      rope_op(at.tokens(), at.sizes.heads + 1, latent.rope_head_dim, at.c, at.given_positions());

  Ops down;
  if (compressed) {
    down.push_back(at.linear(at.shard(), latent.query_rank, at.hidden(), false));
    down.push_back(norm_forward_op(at.inner_norm(latent.query_rank), false));
  }
  down.push_back(at.linear(at.shard(), kv_down, at.hidden(), false));
  down.push_back(norm_forward_op(at.inner_norm(latent.key_value_rank), false));
  Ops up;
  at.enter_product(up, gathered);
  up.push_back(at.linear(at.tokens(), query_rows, query_in, false));
  up.push_back(at.linear(at.tokens(), kv_rows, latent.key_value_rank, false));
  up.push_back(rotate);
  Ops output = {at.linear(at.tokens(), at.hidden(), out, bias)};
  at.leave(output);

  PartOps part;
  part.forward = down;
  append(part.forward, up);
  append(part.forward, core.forward);
  append(part.forward, output);
  if (at.whole) part.recompute = down;
  if (at.repeats(kPartAttention)) append(part.recompute, up);
  append(part.recompute, core.recompute);
  if (at.whole) append(part.recompute, output);

  Ops& input = part.backward_input;
  at.enter_product(input);
  input.push_back(at.linear_input(at.tokens(), at.hidden(), out));
  append(input, core.backward_input);
  input.push_back(rotate);
  input.push_back(at.linear_input(at.tokens(), kv_rows, latent.key_value_rank));
  input.push_back(at.linear_input(at.tokens(), query_rows, query_in));
  at.leave(input, gathered);
  input.push_back(norm_backward_input_op(at.inner_norm(latent.key_value_rank), false, false));
  input.push_back(at.linear_input(at.shard(), kv_down, at.hidden()));
  if (compressed) {
    input.push_back(norm_backward_input_op(at.inner_norm(latent.query_rank), false, false));
    input.push_back(at.linear_input(at.shard(), latent.query_rank, at.hidden()));
  }

  Ops& weight = part.backward_weight;
  at.linear_weight(weight, at.tokens(), at.hidden(), out, bias);
  at.enter_product(weight, gathered);
  at.linear_weight(weight, at.tokens(), kv_rows, latent.key_value_rank, false);
  at.linear_weight(weight, at.tokens(), query_rows, query_in, false);
  weight.push_back(norm_backward_weight_op(at.inner_norm(latent.key_value_rank)));
  at.linear_weight(weight, at.shard(), kv_down, at.hidden(), false);
  if (compressed) {
    weight.push_back(norm_backward_weight_op(at.inner_norm(latent.query_rank)));
    at.linear_weight(weight, at.shard(), latent.query_rank, at.hidden(), false);
  }
  return part;
}

}  // namespace tutti::spec
