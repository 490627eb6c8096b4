// The operations of mixture-of-experts layers: part of the table in ops.h, whose rules and shape
// letters hold here too. Besides: E experts, k choices of a token (top_k), R rows that the arrays
// of token copies have room for. How many copies each expert gets is known on the device only:
// offsets [E+1] i32 are its boundaries, expert e owns rows [offsets[e], offsets[e+1]), and rows
// from offsets[E] on hold nothing.
//
// Copies that go to other ranks may lie in pieces of equally many rows instead (piece_rows > 0),
// one for each rank, so that nobody needs to know how many there are in order to send them. A piece
// has its own boundaries, counted from its first row on, those of the next piece behind them: with
// E experts of a piece, its expert e owns the rows p*piece_rows + [offsets[p*(E+1) + e],
// offsets[p*(E+1) + e+1]), and the last rows of a piece hold nothing.
//
// forward:   logits = x Wr^T; route_forward; assign_rows; permute; grouped_gemm (gate and up);
//            activation; grouped_gemm (down); unpermute with the weights
// backward:  permute with the weights (gives d_weights too); route_backward; two grouped_gemm;
//            unpermute; two grouped_gemm_weight and the router's two products
#pragma once

#include "tutti/engine/tensor.h"
#include "tutti/engine/update_ops.h"

namespace tutti::engine {

// Per row: probabilities = softmax(logits) over all experts; experts = the k experts of the largest
// probability + bias, largest first, the lowest number among equals; weights = their probabilities
// (without bias), divided by their sum where renormalized. lse = log-sum-exp of the logits. All in
// f32.
// record "route_forward": dims (N, E, k).
struct RouteForwardArgs {
  Matrix logits;         // [N, E] f32
  Vector bias = {};      // [E] f32 or bf16, optional: for the selection only
  Matrix probabilities;  // [N, E] f32; may be logits
  Vector lse;            // [N] f32
  Matrix experts;        // [N, k] i32
  Matrix weights;        // [N, k] f32
  bool given = false;    // the choices are in `experts` already: they are weighed, not made
  bool renormalize = true;
};

// Places the chosen copies: rows sorted by expert, then by token. Of each sequence of T tokens an
// expert takes at most `capacity` copies, those of the earliest tokens; the others are dropped
// (position -1). capacity 0: all are taken. counts are the choices before dropping. Aborts when the
// copies need more than `rows` rows, or those of a piece more than piece_rows. Where the rows are
// parts of sequences, each of T tokens, `before` are the choices of the earlier tokens of its
// sequence, which lie elsewhere. record "assign_rows": dims (N, E, k).
struct AssignRowsArgs {
  Matrix experts;        // [N, k] i32
  int64_t sequence = 0;  // T; divides N
  int64_t capacity = 0;
  int64_t rows = 0;        // R
  int64_t piece_rows = 0;  // of R / piece_rows pieces, each with as many experts; 0: no pieces
  Matrix before = {};      // [N/T, E] i32, optional
  Matrix counts;           // [N/T, E] i32
  Vector offsets;          // [E+1] i32, in pieces [E+pieces]
  Matrix positions;        // [N, k] i32: the row of each choice
};

// Sequences that are divided among `blocks` ranks, two parts on each: rank i has the parts i and
// 2 * blocks - 1 - i (AttentionBlockForwardArgs). From the choices in every part, totals of each
// sequence and, for the two parts on rank `block`, the choices in all earlier ones.
// record "merge_counts": dims (B, E, blocks).
struct MergeCountsArgs {
  Matrix counts;  // [blocks * 2B, E] i32: rank by rank, of each sequence its two parts
  int64_t blocks = 0, block = 0;
  Matrix totals;  // [B, E] i32
  Matrix before;  // [2B, E] i32
};

// Scatters tokens to their copies: out[positions[n, i]] = x[n] (times weights[n, i] where given).
// With partner, also dots[n, i] = sum of x[n] * partner[positions[n, i]] in f32, 0 for a dropped
// choice: the gradient of the weights when x is that of unpermute's result and partner its operand.
// record "permute": dims (R, H).
struct PermuteArgs {
  Matrix x;             // [N, H] c
  Matrix positions;     // [N, k] i32
  Matrix weights = {};  // [N, k] f32, optional
  Matrix out;           // [R, H] c
  Matrix partner = {};  // [R, H] c, optional
  Matrix dots = {};     // [N, k] f32, with partner
};

// Gathers: out[n] (+)= sum over i of rows[positions[n, i]] (times weights[n, i]), dropped choices
// left out; summed in f32 in the order of i, out first when accumulating.
// record "unpermute": dims (R, H).
struct UnpermuteArgs {
  Matrix rows;       // [R, H] c
  Matrix positions;  // [N, k] i32
  Matrix weights = {};
  bool accumulate = false;
  Matrix out;  // [N, H] c
};

// c[r] = a[r] * B_e for the rows r of expert e, where B_e is the e-th of E blocks of equal height
// in b: [k, n], or [n, k] read transposed. Rows of no expert are left alone. There may be several
// times E groups of rows, as they come from as many ranks, one after the other or in pieces: group
// g is of expert g % E, and `offsets` has as many boundaries more. record "grouped_gemm": dims (E,
// used rows, n, k); flops 2*used*n*k; bytes of the used rows and of all of b.
struct GroupedGemmArgs {
  Matrix a;        // [R, k] c
  Matrix b;        // [E*k, n] or [E*n, k] c
  Vector offsets;  // [groups+1] i32, in pieces [groups+pieces]
  int64_t piece_rows = 0;
  bool transpose_b = false;
  Matrix c;  // [R, n] c
};

// d_weight_e = beta * d_weight_e + dy_e^T x_e for each expert's rows; without rows the product is
// zero. beta is 0 (d_weight may hold anything) or 1. Groups as in grouped_gemm; those of one expert
// are added in their order.
// record "grouped_gemm_weight": dims (E, used rows, m, n); flops 2*used*m*n; bytes of the used rows
// and of d_weight.
struct GroupedGemmWeightArgs {
  Matrix dy;       // [R, m] c
  Matrix x;        // [R, n] c
  Vector offsets;  // [groups+1] i32, in pieces [groups+pieces]
  int64_t piece_rows = 0;
  float beta = 1;
  Matrix d_weight;  // [E*m, n] f32
};

// x[r] += bias_e for the rows r of expert e; groups as in grouped_gemm. On the CPU only.
// record "grouped_bias": dims (E, used rows, n); bytes of the used rows twice and of all biases.
struct GroupedBiasArgs {
  Matrix x;        // [R, n] c
  Vector offsets;  // [groups+1] i32, in pieces [groups+pieces]
  int64_t piece_rows = 0;
  Vector bias;  // [E*n] c
};

// d_bias_e = beta * d_bias_e + scale * (sum of dy[r] over the rows r of expert e): the gradient of
// its bias. On the CPU only. record "grouped_column_sum": dims (E, used rows, n); bytes of the used
// rows and of d_bias, this twice (beta 0: once).
struct GroupedColumnSumArgs {
  Matrix dy;       // [R, n] c
  Vector offsets;  // [groups+1] i32, in pieces [groups+pieces]
  int64_t piece_rows = 0;
  float beta = 1;  // 0 or 1
  float scale = 1;
  Vector d_bias;  // [E*n] f32
};

// d_logits from d_weights, plus the gradients of two auxiliary losses over sequences of T tokens:
//   balance(sequence) = E * sum over e of (counts[e] / T) * (mean of probabilities[:, e])
//   z(row)            = lse^2
// d_logits = d(sum of d_weights * weights) + balance_scale * d(balance) + z_scale * d(z); counts
// are constants. Of sequences that lie on several ranks, rows are a part, `sequence` is T and
// counts are those of all parts; where the rows are a block of those of a micro-batch,
// `rows_each` of each sequence, first_row says where it begins. d_logits and the sums are then this
// part's share. balance is what
// Hugging Face's load_balancing_loss_func gives for the logits of one layer and sequence: k when
// even (Fedus et al. 2021, eq. 4, over k choices); z: Zoph et al. 2022, eq. 5. Also sums up what
// happened (beta 0: overwritten): load[e] += choices of e, and sums
// += {balance of all sequences, z of all rows, choices dropped}. record "route_backward": dims (N,
// E, k).
struct RouteBackwardArgs {
  Matrix probabilities;   // [N, E] f32
  Vector lse;             // [N] f32
  Matrix experts;         // [N, k] i32
  Matrix weights;         // [N, k] f32
  Matrix d_weights;       // [N, k] f32
  Matrix counts;          // [B, E] i32: of assign_rows, or merge_counts' totals
  Matrix positions;       // [N, k] i32, of assign_rows
  int64_t sequence = 0;   // T; 0: rows_each
  int64_t rows_each = 0;  // 0: N/B, all rows being there
  int64_t first_row = 0;
  float balance_scale = 0;
  float z_scale = 0;
  bool renormalize = true;  // as in route_forward
  Matrix d_logits;          // [N, E] c
  float beta = 1;
  Vector load;  // [E] f32
  Vector sums;  // [3] f32
};

// bias[e] += rate * sign(mean of load - load[e]): experts with less than their share become more
// attractive (Wang et al. 2024, "Auxiliary-loss-free load balancing"; DeepSeek-V3, section 2.1.2).
// `weights`, when given, receives bias in bf16. With `scalars`, in memory of the stream, nothing is
// written where they do not apply.
// record "update_selection_bias": dims (biases).
struct UpdateSelectionBiasArgs {
  Vector load;          // [E] f32
  int64_t first = 0;    // the first expert of those that `bias` has
  Vector bias;          // [<= E] f32
  Vector weights = {};  // as many bf16, optional
  float rate = 0;
  const UpdateScalars* scalars = nullptr;  // optional
};

}  // namespace tutti::engine
