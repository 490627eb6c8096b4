#include "tutti/spec/program/operation.h"

#include "tutti/base/real.h"

namespace tutti::spec {
namespace {

double size(int64_t count, DType type) { return real(count) * real(dtype_bytes(type)); }
constexpr double kF32 = 4;

Op make(const char* name, std::array<int64_t, 6> dims, double flops, double bytes) {
  Op op;
  op.name = name;
  op.dims = dims;
  op.flops = flops;
  op.model_flops = flops;
  op.bytes = bytes;
  op.first_bytes = bytes;
  return op;
}

double statistics_bytes(const NormShape& shape) {
  return (shape.layer ? 2 : 1) * real(shape.rows) * kF32;
}

double norm_sums_bytes(const NormShape& shape) {
  return (shape.bias ? 2 : 1) * real(shape.width) * kF32;
}

}  // namespace

Op gemm_op(GemmShape shape, DType operands, DType result, bool bias, Accumulate accumulate) {
  const auto [m, n, k] = shape;
  const double product = size(m * n, result);
  Op op = make(
      "gemm", {m, n, k}, 2 * real(m) * real(n) * real(k),
      size(m * k, operands) + size(k * n, operands) + product + (bias ? size(n, operands) : 0));
  if (accumulate != Accumulate::never) op.bytes += product;
  if (accumulate == Accumulate::always) op.first_bytes += product;
  return op;
}

Op norm_forward_op(const NormShape& shape, bool branch) {
  const int64_t all = shape.rows * shape.width;
  double bytes = size(all, shape.residual) + size(shape.width, shape.compute) +
                 size(all, shape.compute) + statistics_bytes(shape);
  if (shape.bias) bytes += size(shape.width, shape.compute);
  if (branch) bytes += size(all, shape.compute) + size(all, shape.residual);
  return make("norm_forward", {shape.rows, shape.width}, 0, bytes);
}

Op norm_backward_input_op(const NormShape& shape, bool accumulate, bool d_branch, bool sums) {
  const int64_t all = shape.rows * shape.width;
  double bytes = size(all, shape.compute) + size(all, shape.residual) +
                 size(shape.width, shape.compute) + statistics_bytes(shape) +
                 size(all, shape.residual) * (accumulate ? 2 : 1);
  if (d_branch) bytes += size(all, shape.compute);
  if (sums) bytes += 2 * norm_sums_bytes(shape);
  Op op = make("norm_backward_input", {shape.rows, shape.width}, 0, bytes);
  if (sums) op.first_bytes -= norm_sums_bytes(shape);
  return op;
}

Op norm_backward_weight_op(const NormShape& shape) {
  const int64_t all = shape.rows * shape.width;
  const double sums = norm_sums_bytes(shape);
  Op op = make(
      "norm_backward_weight", {shape.rows, shape.width}, 0,
      size(all, shape.compute) + size(all, shape.residual) + statistics_bytes(shape) + 2 * sums);
  op.first_bytes -= sums;
  return op;
}

Op rms_norm_forward_op(int64_t rows, int64_t groups, int64_t width, DType compute) {
  return make("rms_norm_forward", {rows, groups, width}, 0,
              size((2 * rows * groups + 1) * width, compute) + real(rows * groups) * kF32);
}

Op rms_norm_backward_op(int64_t rows, int64_t groups, int64_t width, DType compute, bool sums) {
  Op op = make("rms_norm_backward", {rows, groups, width}, 0,
               size((3 * rows * groups + 1) * width, compute) + real(rows * groups) * kF32 +
                   (sums ? 2 * real(width) * kF32 : 0));
  if (sums) op.first_bytes -= real(width) * kF32;
  return op;
}

Op softcap_op(int64_t rows, int64_t columns, DType type) {
  return make("softcap", {rows, columns}, 0, 2 * size(rows * columns, type));
}

Op column_sum_op(int64_t rows, int64_t columns, DType compute) {
  Op op = make("column_sum", {rows, columns}, 0,
               size(rows * columns, compute) + 2 * real(columns) * kF32);
  op.first_bytes -= real(columns) * kF32;
  return op;
}

Op activation_forward_op(const ActivationShape& shape) {
  const int64_t inputs = shape.gated ? 2 : 1;
  return make("activation_forward", {shape.rows, shape.width}, 0,
              size(shape.rows * shape.width * (inputs + 1), shape.compute) +
                  (shape.bias ? size(inputs * shape.width, shape.compute) : 0));
}

Op activation_backward_op(const ActivationShape& shape) {
  const int64_t inputs = shape.gated ? 2 : 1;
  return make("activation_backward", {shape.rows, shape.width}, 0,
              size(shape.rows * shape.width * (2 * inputs + 1), shape.compute) +
                  (shape.bias ? size(inputs * shape.width, shape.compute) : 0));
}

Op rope_op(int64_t rows, int64_t heads, int64_t head_dim, DType compute, bool positions) {
  return rope_op(rows, heads, head_dim, head_dim, compute, positions);
}

Op rope_op(int64_t rows, int64_t heads, int64_t head_dim, int64_t all, DType compute,
           bool positions) {
  return make("rope", {rows, heads, all}, 0,
              2 * size(rows * heads * head_dim, compute) + real(head_dim / 2) * kF32 +
                  (positions ? size(rows, DType::i32) : 0));
}

double seen_pairs(int64_t tokens, int64_t window) {
  if (window == 0 || window >= tokens) return real(tokens) * real(tokens) / 2;
  return real(window) * real(window) / 2 + real(tokens - window) * (real(window) - 0.5);
}

namespace {

// Multiply-adds of one of the two products over the causal half, per unit of head width.
double causal_pairs(const AttentionShape& shape) {
  if (shape.window > 0 && shape.queries == shape.keys) {
    return real(shape.batch * shape.heads) * seen_pairs(shape.queries, shape.window);
  }
  return real(shape.batch * shape.heads) * real(shape.queries) * real(shape.keys) / 2;
}

// For one rank's queries and one rank's keys, with or without a window.
double block_pairs(const AttentionShape& shape) {
  return real(shape.batch * shape.heads) * real(shape.queries) * real(shape.keys) / 2;
}

double starts_bytes(const AttentionShape& shape) {
  return shape.packed || shape.window > 0 ? size(shape.batch * shape.queries, DType::i32) : 0;
}

double operand_bytes(const AttentionShape& shape) {
  const int64_t rows = shape.batch * shape.queries;
  const int64_t seen = shape.batch * shape.keys;
  return size(rows * shape.heads * shape.key_dim, shape.compute) +
         size(seen * shape.kv_heads * (shape.key_dim + shape.value_dim), shape.compute);
}

}  // namespace

Op attention_forward_op(const AttentionShape& shape) {
  const int64_t rows = shape.batch * shape.queries;
  const double flops = 2 * causal_pairs(shape) * real(shape.key_dim + shape.value_dim);
  Op op = make("attention_forward",
               {shape.batch, shape.queries, shape.heads, shape.kv_heads, shape.key_dim}, flops,
               operand_bytes(shape) + size(rows * shape.heads * shape.value_dim, shape.compute) +
                   real(rows * shape.heads) * kF32 + starts_bytes(shape));
  op.bound = shape.packed;
  return op;
}

Op attention_backward_op(const AttentionShape& shape) {
  const int64_t rows = shape.batch * shape.queries;
  // Products: recomputed scores, d_query, d_key (key width); d_probabilities, d_value (value
  // width).
  const double pairs = causal_pairs(shape);
  Op op = make("attention_backward",
               {shape.batch, shape.queries, shape.heads, shape.kv_heads, shape.key_dim},
               2 * pairs * real(3 * shape.key_dim + 2 * shape.value_dim),
               2 * operand_bytes(shape) +
                   2 * size(rows * shape.heads * shape.value_dim, shape.compute) +
                   2 * real(rows * shape.heads) * kF32 + starts_bytes(shape));
  op.bound = shape.packed;
  op.model_flops = 4 * pairs * real(shape.key_dim + shape.value_dim);
  return op;
}

Op attention_block_forward_op(const AttentionShape& shape, bool own) {
  const int64_t rows = shape.batch * shape.queries;
  const double state = size(rows * shape.heads * (shape.value_dim + 1), DType::f32);
  Op op =
      make("attention_block_forward",
           {shape.batch, shape.queries, shape.heads, shape.kv_heads, shape.key_dim, own ? 1 : 0},
           2 * block_pairs(shape) * real(shape.key_dim + shape.value_dim),
           operand_bytes(shape) + (own ? 1 : 2) * state + starts_bytes(shape));
  op.bound = shape.packed || shape.window > 0;
  return op;
}

Op attention_block_backward_op(const AttentionShape& shape, bool own, bool add_keys) {
  const int64_t rows = shape.batch * shape.queries;
  const int64_t seen = shape.batch * shape.keys;
  const double pairs = block_pairs(shape);
  const double out = size(rows * shape.heads * shape.value_dim, shape.compute);
  const double queries = size(rows * shape.heads * shape.key_dim, DType::f32);
  const double keys = size(seen * shape.kv_heads * (shape.key_dim + shape.value_dim), DType::f32);
  Op op =
      make("attention_block_backward",
           {shape.batch, shape.queries, shape.heads, shape.kv_heads, shape.key_dim, own ? 1 : 0},
           2 * pairs * real(3 * shape.key_dim + 2 * shape.value_dim),
           operand_bytes(shape) + (own ? 2 : 1) * out + 2 * size(rows * shape.heads, DType::f32) +
               (own ? 1 : 2) * queries + (add_keys ? 2 : 1) * keys + starts_bytes(shape));
  op.bound = shape.packed || shape.window > 0;
  op.model_flops = 4 * pairs * real(shape.key_dim + shape.value_dim);
  return op;
}

Op copy_op(int64_t rows, int64_t columns, DType x, DType out) {
  return make("copy", {rows, columns}, 0, size(rows * columns, x) + size(rows * columns, out));
}

Op add_op(int64_t rows, int64_t columns, DType x, DType plus, DType out) {
  Op op = copy_op(rows, columns, x, out);
  op.bytes += size(rows * columns, plus);
  op.first_bytes = op.bytes;
  return op;
}

Op batched_gemm_op(int64_t batch, GemmShape shape, DType compute) {
  const auto [m, n, k] = shape;
  Op op = make("batched_gemm", {batch, m, n, k}, 2 * real(batch) * real(m) * real(n) * real(k),
               size(batch * (m * k + k * n + m * n), compute));
  op.model_flops = op.flops / 2;
  return op;
}

namespace {

// Bytes of [tokens, E] in f32, of [tokens, top_k] and of the sums over a step, 4 each.
double per_expert(const RouterShape& shape) { return real(shape.tokens * shape.experts) * 4; }
double per_choice(int64_t tokens, int64_t top_k) { return real(tokens * top_k) * 4; }
double router_sums(const RouterShape& shape) { return real(shape.experts + 3) * 4; }

}  // namespace

Op route_forward_op(const RouterShape& shape) {
  return make("route_forward", {shape.tokens, shape.experts, shape.top_k}, 0,
              2 * per_expert(shape) + size(shape.tokens, DType::f32) +
                  2 * per_choice(shape.tokens, shape.top_k) +
                  (shape.bias ? size(shape.experts, shape.compute) : 0));
}

Op route_backward_op(const RouterShape& shape) {
  Op op = make("route_backward", {shape.tokens, shape.experts, shape.top_k}, 0,
               per_expert(shape) + size(shape.tokens, DType::f32) +
                   4 * per_choice(shape.tokens, shape.top_k) +
                   size(shape.sequences * shape.experts, DType::i32) +
                   size(shape.tokens * shape.experts, shape.compute) + 2 * router_sums(shape));
  op.first_bytes -= router_sums(shape);
  return op;
}

Op assign_rows_op(const RouterShape& shape) {
  return make("assign_rows", {shape.tokens, shape.experts, shape.top_k}, 0,
              2 * per_choice(shape.tokens, shape.top_k) +
                  size(shape.sequences * shape.experts + shape.experts + shape.pieces, DType::i32));
}

Op merge_counts_op(const RouterShape& router, int64_t blocks) {
  return make("merge_counts", {router.sequences, router.experts, blocks}, 0,
              size((2 * blocks + 3) * router.sequences * router.experts, DType::i32));
}

Op permute_op(const CopyShape& shape, bool backward) {
  const int64_t copies = shape.copies * (backward ? 2 : 1);
  return make("permute", {shape.copies, shape.width}, 0,
              size((shape.tokens + copies) * shape.width, shape.compute) +
                  (backward ? 3 : 1) * per_choice(shape.tokens, shape.top_k));
}

Op unpermute_op(const CopyShape& shape, bool weighted, bool accumulate) {
  const int64_t tokens = shape.tokens * (accumulate ? 2 : 1);
  return make("unpermute", {shape.copies, shape.width}, 0,
              size((shape.copies + tokens) * shape.width, shape.compute) +
                  (weighted ? 2 : 1) * per_choice(shape.tokens, shape.top_k));
}

Op update_selection_bias_op(int64_t experts, bool separate_weights) {
  return make("update_selection_bias", {experts}, 0,
              3 * size(experts, DType::f32) + (separate_weights ? size(experts, DType::bf16) : 0));
}

Op grouped_gemm_op(int64_t groups, GemmShape shape, double model_rows, DType compute) {
  const auto [rows, n, k] = shape;
  Op op = make("grouped_gemm", {groups, rows, n, k}, 2 * real(rows) * real(n) * real(k),
               size(rows * (n + k) + groups * n * k, compute));
  op.model_flops = 2 * model_rows * real(n) * real(k);
  return op;
}

Op grouped_gemm_weight_op(int64_t groups, GemmShape shape, double model_rows, DType compute) {
  const auto [rows, n, k] = shape;
  const double gradient = real(groups) * real(n) * real(k) * kF32;
  Op op = make("grouped_gemm_weight", {groups, rows, n, k}, 2 * real(rows) * real(n) * real(k),
               size(rows * (n + k), compute) + 2 * gradient);
  op.model_flops = 2 * model_rows * real(n) * real(k);
  op.first_bytes -= gradient;
  return op;
}

Op grouped_bias_op(int64_t groups, int64_t rows, int64_t columns, DType compute) {
  return make("grouped_bias", {groups, rows, columns}, 0,
              size((2 * rows + groups) * columns, compute));
}

Op grouped_column_sum_op(int64_t groups, int64_t rows, int64_t columns, DType compute) {
  const double sums = real(groups * columns) * kF32;
  Op op = make("grouped_column_sum", {groups, rows, columns}, 0,
               size(rows * columns, compute) + 2 * sums);
  op.first_bytes -= sums;
  return op;
}

Op attention_sink_forward_op(int64_t rows, int64_t heads, int64_t width, DType compute) {
  return make("attention_sink_forward", {rows, heads, width}, 0,
              size(2 * rows * heads * width + heads, compute) + 2 * real(rows * heads) * kF32);
}

Op attention_sink_backward_op(int64_t rows, int64_t heads, DType compute) {
  Op op = make("attention_sink_backward", {rows, heads}, 0,
               size(heads, compute) + 2 * real(rows * heads + heads) * kF32);
  op.first_bytes -= real(heads) * kF32;
  return op;
}

Op latent_heads_op(int64_t rows, int64_t heads, const LatentAttention& latent, DType compute,
                   bool backward) {
  const int64_t shared = latent.rope_head_dim, own = latent.nope_head_dim;
  const int64_t value = latent.value_head_dim;
  return make(
      backward ? "latent_heads_backward" : "latent_heads", {rows, heads, shared, own, value}, 0,
      size(rows * (heads * (own + value) + shared + heads * (shared + own + value)), compute));
}

Op embedding_forward_op(const EmbeddingShape& shape) {
  const int64_t all = shape.rows * shape.width;
  return make("embedding_forward", {shape.rows, shape.width}, 0,
              (shape.positions ? 2 : 1) * size(all, shape.compute) + size(all, shape.residual) +
                  size(shape.given_positions ? 2 * shape.rows : shape.rows, DType::i32));
}

Op embedding_backward_op(const EmbeddingShape& shape, int64_t token_rows, int64_t position_rows) {
  const int64_t all = shape.rows * shape.width;
  const int64_t tables = shape.positions ? 2 : 1;
  Op op = make("embedding_backward", {shape.rows, shape.width}, 0,
               size(all, shape.residual) +
                   size(shape.given_positions ? 2 * shape.rows : shape.rows, DType::i32) +
                   2 * real(tables * all) * kF32);
  op.first_bytes += real((token_rows + position_rows) * shape.width) * kF32;
  return op;
}

Op add_positions_op(const EmbeddingShape& shape) {
  const int64_t all = shape.rows * shape.width;
  return make("add_positions", {shape.rows, shape.width}, 0,
              (shape.positions ? 2 : 1) * size(all, shape.compute) + size(all, shape.residual) +
                  (shape.given_positions ? size(shape.rows, DType::i32) : 0));
}

Op position_backward_op(const EmbeddingShape& shape, int64_t position_rows) {
  const int64_t all = shape.rows * shape.width;
  Op op = make("embedding_backward", {shape.rows, shape.width}, 0,
               size(all, shape.residual) + 2 * real(all) * kF32 +
                   (shape.given_positions ? size(shape.rows, DType::i32) : 0));
  op.first_bytes += real(position_rows * shape.width) * kF32;
  return op;
}

Op convert_op(int64_t elements, DType from, DType to) {
  return make("convert", {elements}, 0, size(elements, from) + size(elements, to));
}

Op cross_entropy_shard_op(int64_t rows, int64_t padded, DType logits) {
  return make("cross_entropy_shard", {rows, padded}, 0,
              size(rows * padded, logits) + size(rows, DType::i32) + 2 * size(rows, DType::f32));
}

Op cross_entropy_merge_op(int64_t rows, int64_t padded, int64_t ways, DType logits, DType compute,
                          bool gradient) {
  return make("cross_entropy_merge", {rows, padded}, 0,
              size(rows, DType::i32) + real(2 * ways + 1) * size(rows, DType::f32) +
                  (gradient ? size(rows * padded, logits) + size(rows * padded, compute) : 0));
}

Op cross_entropy_op(int64_t rows, int64_t vocabulary, int64_t padded, DType logits, DType compute,
                    bool gradient) {
  return make("cross_entropy", {rows, vocabulary}, 0,
              size(rows * padded, logits) + size(rows, DType::i32) + size(rows, DType::f32) +
                  (gradient ? size(rows * padded, compute) : 0));
}

Op distill_cross_entropy_op(int64_t rows, int64_t vocabulary, int64_t padded, DType logits,
                            DType compute) {
  return make("distill_cross_entropy", {rows, vocabulary}, 0,
              2 * size(rows * padded, logits) + size(rows, DType::i32) +
                  2 * size(rows, DType::f32) + size(rows * padded, compute));
}

Op dropout_op(int64_t rows, int64_t columns, DType type, bool numbered) {
  return make("dropout", {rows, columns}, 0,
              2 * size(rows * columns, type) + (numbered ? size(rows, DType::i32) : 0));
}

Op squared_norm_op(int64_t elements) {
  Op op = make("squared_norm", {elements}, 2 * real(elements),
               size(elements, DType::f32) + static_cast<double>(sizeof(double)));
  op.model_flops = 0;
  return op;
}

Op adamw_op(int64_t elements, DType compute, bool masters) {
  // Reads the gradient; reads and writes moments and master weights; writes copies.
  const double updated = 2 * size(elements, masters ? DType::f32 : compute);
  return make("adamw", {elements}, 0,
              5 * size(elements, DType::f32) + updated + (masters ? size(elements, compute) : 0));
}

Op memory_op(const char* name, std::array<int64_t, 6> dims, double bytes) {
  return make(name, dims, 0, bytes);
}

Op collective_op(const char* name, Axis axis, int64_t ranks, double bytes) {
  Op op = make(name, {static_cast<int64_t>(bytes), ranks}, 0, bytes);
  op.collective = true;
  op.axis = axis;
  return op;
}

}  // namespace tutti::spec
