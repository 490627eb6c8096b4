// Operations of mixture-of-experts layers: part of the table in ops.h, whose rules and shape
// letters apply here. In addition: E experts, k choices of a token (top_k), and R rows, the
// capacity of the arrays of token copies. Only the device knows how many copies each expert gets:
// offsets [E+1] i32 are the boundaries, expert e owns rows [offsets[e], offsets[e+1]), and rows
// from offsets[E] on are unused.
//
// Copies for other ranks may instead lie in pieces of equal size (piece_rows > 0), one per rank, so
// that they can be sent without knowing their number on the host. Each piece has its own
// boundaries, relative to its first row and stored piece after piece: with E experts per piece,
// expert e of piece p owns the rows p*piece_rows + [offsets[p*(E+1) + e], offsets[p*(E+1) + e+1]),
// and the remaining rows of a piece are unused.
//
// forward:   logits = x Wr^T; route_forward; assign_rows; permute; grouped_gemm (gate and up);
//            activation; grouped_gemm (down); unpermute with the weights
// backward:  permute with the weights (also gives d_weights); route_backward; two grouped_gemm;
//            unpermute; two grouped_gemm_weight and the router's two products
#pragma once

#include "tutti/engine/tensor.h"
#include "tutti/engine/update_ops.h"

namespace tutti::engine {

// How routers score experts: with probabilities that compete, or each for itself (DeepSeek-V3).
enum class RouterScores { softmax, sigmoid };

// Which experts a row may choose: those of its best groups. Experts are divided into `count` groups
// of consecutive ones, of which the `chosen` with the largest mark may be chosen from; the mark of
// a group is its largest score + bias, or the sum of the `best` largest of them (DeepSeek-V2: 1;
// DeepSeek-V3: 2). Ties go to the lower index. count 1: all may be chosen.
inline constexpr int64_t kMostRouterGroups = 256;
struct RouterGroups {
  int64_t count = 1;
  int64_t chosen = 1;
  int64_t best = 1;
};

// Per row: probabilities = softmax(logits) over all experts, or sigmoid(logits) of each; experts =
// the k experts with the largest probability + bias in the groups that may be chosen from, in
// descending order, ties to the lower index; weights = factor * their probabilities (without bias),
// divided by their sum if `renormalize`. lse = log-sum-exp of the logits. All in f32. Sigmoid,
// several groups and a factor on the CPU only.
// record "route_forward": dims (N, E, k).
struct RouteForwardArgs {
  Matrix logits;         // [N, E] f32
  Vector bias = {};      // [E] f32 or bf16, optional: affects the selection only
  Matrix probabilities;  // [N, E] f32; may be logits
  Vector lse;            // [N] f32
  Matrix experts;        // [N, k] i32
  Matrix weights;        // [N, k] f32
  bool given = false;    // `experts` is an input: only the weights are computed
  bool renormalize = true;
  RouterScores scores = RouterScores::softmax;
  RouterGroups groups = {};
  float factor = 1;
};

// Assigns a row to each choice: rows are sorted by expert, then by token. An expert takes at most
// `capacity` copies of each sequence of T tokens, those of the earliest tokens; the others are
// dropped (position -1). capacity 0: no limit. counts are the choices before dropping. Aborts if
// the copies need more than `rows` rows, or those of a piece more than piece_rows. If each run of T
// tokens is only a part of a sequence, `before` counts the choices of the earlier tokens of that
// sequence, which other ranks or calls hold. record "assign_rows": dims (N, E, k).
struct AssignRowsArgs {
  Matrix experts;        // [N, k] i32
  int64_t sequence = 0;  // T; divides N
  int64_t capacity = 0;
  int64_t rows = 0;        // R
  int64_t piece_rows = 0;  // of R / piece_rows pieces with equally many experts; 0: no pieces
  Matrix before = {};      // [N/T, E] i32, optional
  Matrix counts;           // [N/T, E] i32
  Vector offsets;          // [E+1] i32, with pieces [E+pieces]
  Matrix positions;        // [N, k] i32: the row of each choice
};

// For sequences sharded across `blocks` ranks, two parts per rank: rank i has parts i and
// 2 * blocks - 1 - i (AttentionBlockForwardArgs). Computes, from the choices in every part, the
// totals of each sequence and, for the two parts of rank `block`, the choices in all earlier parts.
// record "merge_counts": dims (B, E, blocks).
struct MergeCountsArgs {
  Matrix counts;  // [blocks * 2B, E] i32: rank by rank, the two parts of each sequence
  int64_t blocks = 0, block = 0;
  Matrix totals;  // [B, E] i32
  Matrix before;  // [2B, E] i32
};

// Scatters tokens to their copies: out[positions[n, i]] = x[n] (times weights[n, i] if given). With
// partner, also dots[n, i] = sum of x[n] * partner[positions[n, i]] in f32, 0 for a dropped choice:
// the gradient of the weights if x is the gradient of unpermute's result and partner its operand.
// record "permute": dims (R, H).
struct PermuteArgs {
  Matrix x;             // [N, H] c
  Matrix positions;     // [N, k] i32
  Matrix weights = {};  // [N, k] f32, optional
  Matrix out;           // [R, H] c
  Matrix partner = {};  // [R, H] c, optional
  Matrix dots = {};     // [N, k] f32, with partner
};

// Gathers: out[n] (+)= sum over i of rows[positions[n, i]] (times weights[n, i]), without dropped
// choices; summed in f32 in the order of i, starting with out when accumulating.
// record "unpermute": dims (R, H).
struct UnpermuteArgs {
  Matrix rows;       // [R, H] c
  Matrix positions;  // [N, k] i32
  Matrix weights = {};
  bool accumulate = false;
  Matrix out;  // [N, H] c
};

// c[r] = a[r] * B_e for the rows r of expert e, where B_e is the e-th of E blocks of equal height
// in b: [k, n], or [n, k] read transposed. Rows of no expert are not written. There may be a
// multiple of E groups of rows, for rows received from several ranks, one after the other or in
// pieces: group g belongs to expert g % E, and `offsets` holds the boundaries of all groups.
// record "grouped_gemm": dims (E, used rows, n, k); flops 2*used*n*k; bytes of the used rows and of
// all of b.
struct GroupedGemmArgs {
  Matrix a;        // [R, k] c
  Matrix b;        // [E*k, n] or [E*n, k] c
  Vector offsets;  // [groups+1] i32, with pieces [groups+pieces]
  int64_t piece_rows = 0;
  bool transpose_b = false;
  Matrix c;  // [R, n] c
};

// d_weight_e = beta * d_weight_e + dy_e^T x_e for each expert's rows; without rows the product is
// zero. beta is 0 (d_weight may hold anything) or 1. Groups as in grouped_gemm; the groups of one
// expert are added in order.
// record "grouped_gemm_weight": dims (E, used rows, m, n); flops 2*used*m*n; bytes of the used rows
// and of d_weight.
struct GroupedGemmWeightArgs {
  Matrix dy;       // [R, m] c
  Matrix x;        // [R, n] c
  Vector offsets;  // [groups+1] i32, with pieces [groups+pieces]
  int64_t piece_rows = 0;
  float beta = 1;
  Matrix d_weight;  // [E*m, n] f32
};

// x[r] += bias_e for the rows r of expert e; groups as in grouped_gemm. CPU only.
// record "grouped_bias": dims (E, used rows, n); bytes of the used rows twice and of all biases.
struct GroupedBiasArgs {
  Matrix x;        // [R, n] c
  Vector offsets;  // [groups+1] i32, with pieces [groups+pieces]
  int64_t piece_rows = 0;
  Vector bias;  // [E*n] c
};

// d_bias_e = beta * d_bias_e + scale * (sum of dy[r] over the rows r of expert e): the gradient of
// its bias. CPU only. record "grouped_column_sum": dims (E, used rows, n); bytes of the used rows
// and of d_bias, the latter twice (beta 0: once).
struct GroupedColumnSumArgs {
  Matrix dy;       // [R, n] c
  Vector offsets;  // [groups+1] i32, with pieces [groups+pieces]
  int64_t piece_rows = 0;
  float beta = 1;  // 0 or 1
  float scale = 1;
  Vector d_bias;  // [E*n] f32
};

// d_logits from d_weights, plus the gradients of two auxiliary losses over sequences of T tokens:
//   balance(sequence) = E * sum over e of (counts[e] / T) * (mean of probabilities[:, e])
//   z(row)            = lse^2
// where probabilities of sigmoid scores are taken over their sum in the first, and z_scale is 0.
// d_logits = d(sum of d_weights * weights) + balance_scale * d(balance) + z_scale * d(z); counts
// are constants. If sequences are sharded across ranks, the rows are a part of them, `sequence` is
// T, and counts cover all parts. If the rows are a block of a micro-batch's rows, with `rows_each`
// rows of each sequence, the block begins at first_row. d_logits and sums are then the share of
// these rows. balance equals load_balancing_loss_func of Hugging Face for the logits of one layer
// and sequence: k for balanced experts (Fedus et al. 2021, eq. 4, over k choices); z: Zoph et al.
// 2022, eq. 5. Also accumulates statistics (beta 0: overwrites them): load[e] += choices of e, and
// sums += {balance of all sequences, z of all rows, choices dropped}. record "route_backward": dims
// (N, E, k).
struct RouteBackwardArgs {
  Matrix probabilities;   // [N, E] f32
  Vector lse;             // [N] f32
  Matrix experts;         // [N, k] i32
  Matrix weights;         // [N, k] f32
  Matrix d_weights;       // [N, k] f32
  Matrix counts;          // [B, E] i32: from assign_rows, or the totals of merge_counts
  Matrix positions;       // [N, k] i32, from assign_rows
  int64_t sequence = 0;   // T; 0: rows_each
  int64_t rows_each = 0;  // 0: N/B, for complete sequences
  int64_t first_row = 0;
  float balance_scale = 0;
  float z_scale = 0;
  bool renormalize = true;  // as in route_forward
  RouterScores scores = RouterScores::softmax;
  float factor = 1;
  Matrix d_logits;  // [N, E] c
  float beta = 1;
  Vector load;  // [E] f32
  Vector sums;  // [3] f32
};

// bias[e] += rate * sign(mean of load - load[e]): raises the bias of underloaded experts (Wang et
// al. 2024, "Auxiliary-loss-free load balancing"; DeepSeek-V3, section 2.1.2). `weights`, if given,
// receives bias in bf16. With `scalars`, which is stream memory, writes nothing if scalars->apply
// is 0.
// record "update_selection_bias": dims (biases).
struct UpdateSelectionBiasArgs {
  Vector load;          // [E] f32
  int64_t first = 0;    // the first expert in `bias`
  Vector bias;          // [<= E] f32
  Vector weights = {};  // as many bf16, optional
  float rate = 0;
  const UpdateScalars* scalars = nullptr;  // optional
};

}  // namespace tutti::engine
