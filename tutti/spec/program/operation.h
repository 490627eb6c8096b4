// One operation of a step as plain values: what a backend's Recorder records (engine/ops.h defines
// dims, flops and bytes of each), plus the FLOPs that count for MFU. Also operations and
// collectives that only the planner has; their dims:
//   collectives (bytes of the full buffer, ranks): all_reduce, all_gather, reduce_scatter,
//     all_to_all, send, receive; bytes is the full buffer, too. all_to_all of experts may have a
//     third: copies of a token of which a domain of the network receives one (0: all of them)
//   batched_gemm (batch, m, n, k), softmax and softmax_backward (rows, columns): attention that
//     stores its matrix
//   residual_add (rows, hidden)
//   quantize (rows, columns[, transposed]), narrow_gemm (m, n, k): narrow.h, engine/narrow_ops.h
#pragma once

#include <array>
#include <cstdint>

#include "tutti/base/dtype.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/model/config.h"

namespace tutti::spec {

struct Op {
  const char* name = "";
  std::array<int64_t, 6> dims{};
  double flops = 0;        // executed by the hardware, as recorded
  double model_flops = 0;  // required by the model: causal half, no recomputation, no padding
  double bytes = 0;        // in later micro-batches of a step, which accumulate into gradients
  double first_bytes = 0;  // in the first micro-batch, which overwrites them
  // Sizes within the operation are only known at run time (packed documents): flops and model_flops
  // are upper bounds of the recorded ones.
  bool bound = false;
  bool narrow = false;  // a product of operands in the recipe's format below 16 bits (narrow.h)
  bool collective = false;
  Axis axis = Axis::tp;  // of a collective
};

// m x n = m x k times k x n. `operands` is the type of both; Accumulate: beta is 1 never, after the
// first micro-batch, or in every one.
enum class Accumulate { never, later, always };
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
};
Op gemm_op(GemmShape shape, DType operands, DType result, bool bias = false,
           Accumulate accumulate = Accumulate::never);

struct NormShape {
  int64_t rows = 0;
  int64_t width = 0;
  bool layer = true;  // mean besides rstd
  bool bias = true;
  DType compute = DType::f32;
  DType residual = DType::f32;
};
Op norm_forward_op(const NormShape& shape, bool branch);
// `sums`: also computes the gradients of the weights.
Op norm_backward_input_op(const NormShape& shape, bool accumulate, bool d_branch,
                          bool sums = false);
Op norm_backward_weight_op(const NormShape& shape);

// RMSNorm of column groups in the compute type (engine/norm_ops.h); `sums`: with the gradients of
// the weights.
Op rms_norm_forward_op(int64_t rows, int64_t groups, int64_t width, DType compute);
Op rms_norm_backward_op(int64_t rows, int64_t groups, int64_t width, DType compute, bool sums);
Op softcap_op(int64_t rows, int64_t columns, DType type);

Op column_sum_op(int64_t rows, int64_t columns, DType compute);

struct ActivationShape {
  int64_t rows = 0;
  int64_t width = 0;
  bool gated = false;
  bool bias = false;
  DType compute = DType::f32;
};
Op activation_forward_op(const ActivationShape& shape);
Op activation_backward_op(const ActivationShape& shape);

// positions: given per row. head_dim: rotated columns of a head; dims contain `all` its columns.
Op rope_op(int64_t rows, int64_t heads, int64_t head_dim, int64_t all, DType compute,
           bool positions = false);
Op rope_op(int64_t rows, int64_t heads, int64_t head_dim, DType compute, bool positions = false);

// On one rank: `queries` tokens of each of `batch` sequences attend to `keys` tokens (cp > 1:
// queries = keys / cp, balanced so that each rank has an equal share of the causal half).
struct AttentionShape {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0;
  int64_t key_dim = 0;  // of queries and keys
  int64_t value_dim = 0;
  DType compute = DType::f32;
  // Documents of any lengths instead of one per sequence: FLOPs are those of one document, a bound.
  bool packed = false;
  int64_t window = 0;  // tokens that a token attends to; FLOPs with cp > 1 ignore it
};
// Visible pairs of tokens of a sequence, a token and itself counting as a half: T^2 / 2, or fewer
// with a window.
double seen_pairs(int64_t tokens, int64_t window);
Op attention_forward_op(const AttentionShape& shape);
Op attention_backward_op(const AttentionShape& shape);
// For `rows` tokens, `width` elements per head.
Op attention_sink_forward_op(int64_t rows, int64_t heads, int64_t width, DType compute);
Op attention_sink_backward_op(int64_t rows, int64_t heads, DType compute);
// Keys and values of latent attention; backward: their gradients (engine/attention_ops.h).
Op latent_heads_op(int64_t rows, int64_t heads, const LatentAttention& latent, DType compute,
                   bool backward);

// One step of a ring of context parallel ranks: the queries of one rank and as many keys, half of
// which are visible (engine/ops.h); `own`: the rank's own keys, the first step.
Op attention_block_forward_op(const AttentionShape& shape, bool own);
// add_keys: accumulates into gradients from other queries.
Op attention_block_backward_op(const AttentionShape& shape, bool own, bool add_keys);
// x (+ plus) to out.
Op copy_op(int64_t rows, int64_t columns, DType x, DType out);
Op add_op(int64_t rows, int64_t columns, DType x, DType plus, DType out);

Op batched_gemm_op(int64_t batch, GemmShape shape, DType compute);  // half of it is model work

// Experts (engine/moe_ops.h). Rows are the declared bound if routing decides them (copies);
// model_rows are those that the model needs. Equal to the recorded rows if every copy is used:
// always without a capacity; with one, recorded rows stay below the bound.
struct RouterShape {
  int64_t tokens = 0, sequences = 0, experts = 0, top_k = 0;
  bool bias = false;
  DType compute = DType::f32;
  int64_t pieces = 1;  // of the copies (engine/moe_ops.h)
};
struct CopyShape {
  int64_t tokens = 0, top_k = 0, copies = 0, width = 0;
  DType compute = DType::f32;
};
Op route_forward_op(const RouterShape& shape);
Op route_backward_op(const RouterShape& shape);
Op assign_rows_op(const RouterShape& shape);
// router.sequences: complete ones; `blocks` ranks share each.
Op merge_counts_op(const RouterShape& router, int64_t blocks);
Op permute_op(const CopyShape& shape, bool backward);  // backward: weighted, with dot products
Op unpermute_op(const CopyShape& shape, bool weighted, bool accumulate);
Op grouped_gemm_op(int64_t groups, GemmShape shape, double model_rows, DType compute);
Op grouped_bias_op(int64_t groups, int64_t rows, int64_t columns, DType compute);
Op grouped_column_sum_op(int64_t groups, int64_t rows, int64_t columns, DType compute);
Op grouped_gemm_weight_op(int64_t groups, GemmShape shape, double model_rows, DType compute);
Op update_selection_bias_op(int64_t experts, bool separate_weights);

struct EmbeddingShape {
  int64_t rows = 0;
  int64_t width = 0;
  bool positions = false;
  bool given_positions = false;  // given per row
  DType compute = DType::f32;
  DType residual = DType::f32;
};
Op embedding_forward_op(const EmbeddingShape& shape);
// Rows of the tables that the first micro-batch overwrites; 0: it accumulates.
Op embedding_backward_op(const EmbeddingShape& shape, int64_t token_rows, int64_t position_rows);

// For a table sharded over tensor parallel ranks (engine/vocabulary_ops.h): each rank's operations
// on its own rows; the shape is that of a single rank.
Op add_positions_op(const EmbeddingShape& shape);
Op position_backward_op(const EmbeddingShape& shape, int64_t position_rows);
Op convert_op(int64_t elements, DType from, DType to);

// Logits of type `logits`, of which each of `ways` ranks has `padded` columns; gradients are in
// `compute`, here and below.
Op cross_entropy_shard_op(int64_t rows, int64_t padded, DType logits);
Op cross_entropy_merge_op(int64_t rows, int64_t padded, int64_t ways, DType logits, DType compute,
                          bool gradient);

// `padded` columns of which `vocabulary` are real.
Op cross_entropy_op(int64_t rows, int64_t vocabulary, int64_t padded, DType logits, DType compute,
                    bool gradient);

// The same with the logits of a teacher.
Op distill_cross_entropy_op(int64_t rows, int64_t vocabulary, int64_t padded, DType logits,
                            DType compute);

// numbered: each row has a number.
Op dropout_op(int64_t rows, int64_t columns, DType type, bool numbered = false);
Op squared_norm_op(int64_t elements);
// For weights in `compute`, which are copies with `masters`.
Op adamw_op(int64_t elements, DType compute, bool masters);

// An operation that reads and writes memory only.
Op memory_op(const char* name, std::array<int64_t, 6> dims, double bytes);
Op collective_op(const char* name, Axis axis, int64_t ranks, double bytes);

}  // namespace tutti::spec
