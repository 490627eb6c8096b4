// The operations a backend provides, as one table of functions. Shared code calls
// `stream.ops().gemm(stream, {...})` and never asks which backend it has.
//
// Shape letters: B sequences, T tokens of a sequence, N = B*T rows of a micro-batch, H hidden,
// F feed-forward width, V vocabulary, D head size, A query heads, K key/value heads.
//
// Rules for every operation:
// - It is enqueued on the stream (on the CPU: done when the call returns) and never allocates
//   after its first call with given shapes.
// - Compute types are f32 and bf16 ("c" below: all operands marked c share one type); sums are
//   accumulated in f32, and the result does not depend on anything but operands and thread count.
// - Empty shapes (a zero dimension) are legal and do nothing.
// - When the stream has a Recorder, one OpRecord is noted per call; "record:" states its dims.
//   flops are 0 unless stated; bytes count each operand read once and each result written once,
//   an accumulated result twice; optional operands count when present.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tutti/engine/moe_ops.h"
#include "tutti/engine/narrow_ops.h"
#include "tutti/engine/tensor.h"
#include "tutti/engine/vocabulary_ops.h"

namespace tutti::engine {

class Stream;

// C[m,n] = alpha * A * B + beta * C, where A is [m,k], or [k,m] read transposed; B is [k,n], or
// [n,k] read transposed. beta is 0 (C may hold anything, even NaN) or 1. bias [n] (c or f32) is
// added to each row; with a bias alpha is 1. A and B are c; C is c or f32. record "gemm": dims (m,
// n, k); flops 2*m*n*k.
struct GemmArgs {
  Matrix a;
  Matrix b;
  Matrix c;
  bool transpose_a = false;
  bool transpose_b = false;
  float beta = 0;
  Vector bias = {};
  float alpha = 1;
};

// Which normalisation. LayerNorm: y = (x - mean) * rstd * weight + bias; RMSNorm: y = x * rstd *
// weight, rstd = 1 / sqrt(mean(x^2) + epsilon) (mean and bias unused).
enum class NormKind { layer, rms };

// residual_out = residual_in + branch (f32; residual_out may be residual_in); without a branch
// residual_out is left alone and residual_in is normalised. y[N,H] (c) = norm(residual).
// mean, rstd [N] f32 are kept for backward (mean empty for RMSNorm; both may be empty when no
// backward follows).
// record "norm_forward": dims (N, H).
struct NormForwardArgs {
  NormKind kind = NormKind::layer;
  Matrix residual_in;        // [N, H] f32
  Matrix branch = {};        // [N, H] c, optional
  Matrix residual_out = {};  // [N, H] f32, with branch only
  Vector weight;             // [H] c
  Vector bias = {};          // [H] c, layer only, optional
  float epsilon = 1e-5F;
  Matrix y;          // [N, H] c
  Vector mean = {};  // [N] f32
  Vector rstd = {};  // [N] f32
};

// d_residual (+)= gradient of the normalised residual through the norm. With accumulate false
// d_residual is overwritten. d_branch, when given, receives a copy of the final d_residual in c
// (the gradient of the branch that was added).
// record "norm_backward_input": dims (N, H).
struct NormBackwardInputArgs {
  NormKind kind = NormKind::layer;
  Matrix dy;         // [N, H] c
  Matrix residual;   // [N, H] f32: what was normalised
  Vector weight;     // [H] c
  Vector mean = {};  // [N] f32
  Vector rstd;       // [N] f32
  bool accumulate = true;
  Matrix d_residual;     // [N, H] f32
  Matrix d_branch = {};  // [N, H] c, optional
};

// d_weight += sum over rows of dy * x_hat; d_bias += sum of dy (beta 0: overwritten).
// record "norm_backward_weight": dims (N, H).
struct NormBackwardWeightArgs {
  NormKind kind = NormKind::layer;
  Matrix dy;         // [N, H] c
  Matrix residual;   // [N, H] f32
  Vector mean = {};  // [N] f32
  Vector rstd;       // [N] f32
  float beta = 1;
  Vector d_weight;     // [H] f32
  Vector d_bias = {};  // [H] f32, optional
};

// out[j] = beta*out[j] + sum over rows of x[:, j]: the gradient of a bias.
// record "column_sum": dims (N, columns).
struct ColumnSumArgs {
  Matrix x;  // [N, M] c
  float beta = 1;
  Vector out;  // [M] f32
};

// gelu: y[N,F] = gelu_tanh(x + bias); swiglu: x is [N, 2F] = gate | up, y = silu(gate) * up
// (bias [2F] optional). gelu_tanh(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
// record "activation_forward": dims (N, F).
enum class Activation { gelu, swiglu };
struct ActivationForwardArgs {
  Activation kind = Activation::gelu;
  Matrix x;          // [N, F] or [N, 2F] c
  Vector bias = {};  // c
  Matrix y;          // [N, F] c
};

// dx = dy * derivative at x + bias. gelu: dx may be dy. swiglu: dx [N, 2F] may be x.
// record "activation_backward": dims (N, F).
struct ActivationBackwardArgs {
  Activation kind = Activation::gelu;
  Matrix x;
  Vector bias = {};
  Matrix dy;  // [N, F] c
  Matrix dx;  // [N, F] or [N, 2F] c
};

// Rotates pairs (i, i + D/2) of each of the first `heads` D-wide columns groups of x in place by
// position * inverse_frequency[i] ("rotate half", as Hugging Face Llama). The position of row r is
// positions[r] if given, else first_position + r % sequence. inverse = true turns back (backward).
// record "rope": dims (N, heads, D).
struct RopeArgs {
  Matrix x;  // [N, >= heads*D] c
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t sequence = 0;      // T
  Vector inverse_frequency;  // [D/2] f32
  Vector positions = {};     // [N] i32, optional
  int64_t first_position = 0;
  bool inverse = false;
};

// Causal attention of B sequences of T tokens; heads are column groups of the row: qkv[N, (A+2K)*D]
// = A query heads | K key heads | K value heads. Query head a uses key/value head a / (A/K).
// out[N, A*D]; lse[B*A*T] f32 = log-sum-exp of the scaled scores, laid out [B, A, T].
// No T x T matrix is stored. scale 0 means 1/sqrt(D).
//
// Row t of a sequence sees rows starts[t] .. t of it, or 0 .. t without `starts`. Starts do not
// fall within a sequence, and 0 <= starts[t] <= t: for documents packed one after another, each row
// has the first row of its document. Tiles that no row sees cost nothing. Work is counted in
// pairs = sum over all rows of (t - starts[t] + 1/2), which is the sum of len^2 / 2 over documents
// and B*T*T/2 without `starts`.
// record "attention_forward": dims (B, T, A, K, D); flops 4*A*D*pairs (causal half of 4*B*A*T*T*D).
struct AttentionForwardArgs {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  Matrix qkv;          // [N, (A+2K)*D] c
  Matrix out;          // [N, A*D] c
  Vector lse = {};     // [B*A*T] f32; may be empty when no backward follows
  Vector starts = {};  // [N] i32, optional
};

// d_qkv from d_out. delta[B*A*T] f32 is scratch for rowsum(d_out * out).
// record "attention_backward": dims (B, T, A, K, D); flops 10*A*D*pairs (five half products: the
// recomputed scores are hardware work, not model work; model FLOPs are 8*A*D*pairs).
struct AttentionBackwardArgs {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  Matrix qkv;          // [N, (A+2K)*D] c
  Matrix out;          // [N, A*D] c
  Matrix d_out;        // [N, A*D] c
  Vector lse;          // [B*A*T] f32
  Vector delta;        // [B*A*T] f32, overwritten
  Matrix d_qkv;        // [N, (A+2K)*D] c
  Vector starts = {};  // [N] i32, optional: those of forward
};

// Causal attention of sequences that are divided among ranks (ring attention, Liu et al. 2023): the
// queries of one rank against the keys of one rank. A sequence of blocks * n tokens is cut into
// 2 * blocks chunks; rank i has chunks i and 2 * blocks - 1 - i, one after the other, so that all
// ranks have equal work. So of its own keys row t sees rows 0 .. t; of a rank before it all rows
// see the first chunk; of a rank behind it the rows of the second chunk see all. Each of these is
// half of the pairs, pairs = B*n*n/2. With packed documents rows see less: starts says for each row
// the first row of these keys that is of its document or later (n: none), not falling within a
// sequence and at most t of the own keys; pairs are then those that are left.
//
// What is seen so far is kept normalised, in f32: total = softmax-weighted values and lse =
// log-sum-exp of the scaled scores; a further block of keys is merged into them. The first block is
// that of the rank itself (key_block = query_block): total and lse are then overwritten.
// record "attention_block_forward": dims (B, n, A, K, D, first); flops 4*A*D*pairs; bytes: all
// operands, total and lse twice but for the first.
struct AttentionBlockForwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  int64_t blocks = 1, query_block = 0, key_block = 0;
  Matrix q;       // [B*n, A*D] c
  Matrix keys;    // [B*n, K*D] c
  Matrix values;  // [B*n, K*D] c
  bool first = true;
  Matrix total;        // [B*n, A*D] f32
  Vector lse;          // [B*A*n] f32, laid out [B, A, n]
  Vector starts = {};  // [B*n] i32, optional
};

// The gradients of one block's queries, keys and values from d_out, in f32; overwritten or, where
// asked for, added to. lse is that of all blocks. With the rank's own block delta = rowsum(d_out *
// out) is computed, the others read it. record "attention_block_backward": dims (B, n, A, K, D,
// first: the own block); flops 10*A*D*pairs; bytes: all operands, what is added to twice.
struct AttentionBlockBackwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  int64_t blocks = 1, query_block = 0, key_block = 0;
  Matrix q;       // [B*n, A*D] c
  Matrix keys;    // [B*n, K*D] c
  Matrix values;  // [B*n, K*D] c
  Matrix out;     // [B*n, A*D] c, read with the own block
  Matrix d_out;   // [B*n, A*D] c
  Vector lse;     // [B*A*n] f32
  Vector delta;   // [B*A*n] f32
  bool add_queries = false;
  bool add_keys = false;  // and values
  Matrix d_q;             // [B*n, A*D] f32
  Matrix d_keys;          // [B*n, K*D] f32
  Matrix d_values;        // [B*n, K*D] f32
  Vector starts = {};     // [B*n] i32, optional
};

// Attention of `queries` new tokens per sequence against a cache of keys and values, for
// generation. The new keys and values must already be in the cache: sequence b has
// past + queries valid rows; query i sees rows 0 .. past+i. q rows are [B*queries, A*D].
// record "attention_decode": dims (B, queries, past, A, K, D);
// flops 4*B*A*queries*(past+queries)*D.
struct AttentionDecodeArgs {
  int64_t batch = 0, queries = 0, past = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t capacity = 0;  // rows of the cache per sequence
  float scale = 0;
  Matrix q;       // [B*queries, A*D] c
  Matrix keys;    // [B*capacity, K*D] c
  Matrix values;  // [B*capacity, K*D] c
  Matrix out;     // [B*queries, A*D] c
};

// out[r] = token_table[tokens[r]] (+ position_table[first_position + r % sequence], or
// positions[r] where given). out is f32, or c.
// Of a table whose rows are divided among ranks (`vocabulary` says how many there are in all) this
// is the part of [first_token, first_token + V): rows of other tokens become zero.
// record "embedding_forward": dims (N, H); bytes: N*H of each table and of out, N tokens, and N
// positions where given.
struct EmbeddingForwardArgs {
  Vector tokens;               // [N] i32, each in [0, V), or [0, vocabulary)
  int64_t sequence = 0;        // T
  Matrix token_table;          // [V, H] c
  Matrix position_table = {};  // [context, H] c, optional
  Vector positions = {};       // [N] i32, optional
  int64_t first_position = 0;
  Matrix out;  // [N, H] f32 or c
  int64_t first_token = 0;
  int64_t vocabulary = 0;  // 0: the table is whole
};

// d_token_table[tokens[r]] += d_out[r]; d_position_table[positions[r] or r % sequence] += d_out[r].
// Either table may be left out. Deterministic: rows are added in ascending r. beta 0 overwrites the
// whole tables first. first_token and vocabulary as forward: tokens of other ranks add nothing.
// record "embedding_backward": dims (N, H); bytes: N*H of d_out read, and N*H f32 accumulated per
// table (so twice; also where tokens are others'), N tokens, and N positions where given; beta 0
// adds one write of each whole table.
struct EmbeddingBackwardArgs {
  Vector tokens = {};  // [N] i32, with d_token_table
  int64_t sequence = 0;
  Vector positions = {};  // [N] i32, optional
  Matrix d_out;           // [N, H] f32 or bf16
  float token_beta = 1;   // the token table may hold the tied head's gradient already
  float position_beta = 1;
  Matrix d_token_table = {};     // [V, H] f32
  Matrix d_position_table = {};  // [context, H] f32, optional
  int64_t first_token = 0;
  int64_t vocabulary = 0;
  int64_t first_row = 0;  // row r counts as row first_row + r of the micro-batch
};

// Per row r: loss[r] = logsumexp(logits[r, :V]) - logits[r, target] in f32. A target < 0 is
// ignored: its loss and gradient are 0. With d_logits given (gradient wanted), writes
// gradient_scale * (softmax - onehot) there, zero in columns [V, d_logits.cols). d_logits may be
// the same memory as logits, also with another element type (bf16 rows at the start of f32 rows:
// ld in elements doubles). The vocabulary is read in chunks; no row-sized scratch.
// record "cross_entropy": dims (rows, V); bytes: logits, targets, loss, d_logits.
struct CrossEntropyArgs {
  Matrix logits;  // [n, >= V] f32 or c
  int64_t vocabulary = 0;
  Vector targets;  // [n] i32
  float gradient_scale = 1;
  Vector loss;           // [n] f32
  Matrix d_logits = {};  // [n, >= V] c, optional
};

// Knowledge distillation (Hinton et al. 2015): cross-entropy and the divergence from a teacher, per
// row r, with p_T(x) = softmax(x[:V] / T):
//   loss[r] = the cross-entropy above, to the bit;
//   divergence[r] = T^2 KL(p_T(teacher_logits[r]) || p_T(logits[r]));
// both 0 where the target is ignored. With d_logits given, writes gradient_scale times the gradient
// of (1 - weight) * loss + weight * divergence,
//   (1 - weight) (p_1(logits) - onehot) + weight T (p_T(logits) - p_T(teacher_logits)),
// and zero where ignored and in columns [V, d_logits.cols); with weight 0 the bits of
// cross_entropy. d_logits may overlay logits as there, never the teacher's.
// record "distill_cross_entropy": dims (rows, V); bytes: both logits, targets, loss, divergence,
// d_logits.
struct DistillCrossEntropyArgs {
  Matrix logits;          // [n, >= V] f32 or c: the student's
  Matrix teacher_logits;  // [n, >= V] of the same type
  int64_t vocabulary = 0;
  Vector targets;         // [n] i32
  float temperature = 1;  // T > 0
  float weight = 0;       // 0 to 1
  float gradient_scale = 1;
  Vector loss;           // [n] f32
  Vector divergence;     // [n] f32
  Matrix d_logits = {};  // [n, >= V] c, optional
};

// Multiplies x by mask/(1-p), in place or into `out`; element (r, j) is dropped when the Philox
// word of (key, first_row + r, first_column + j) says so, or of (key, first_row + rows[r], ...)
// where rows are not consecutive, so the same call applies the same mask forward and backward.
// record "dropout": dims (N, M); bytes of x read and written, and of rows.
struct DropoutArgs {
  Matrix x;  // [N, M] f32 or bf16
  float probability = 0;
  uint64_t key = 0;
  int64_t first_row = 0;
  Vector rows = {};  // [N] i32, optional
  Matrix out = {};   // [N, M] of x's type, optional; x is then left alone
  int64_t first_column = 0;
};

// What an update reads besides tensors and differs from step to step, in memory of the stream: so
// no host waits between the gradients and their update.
struct UpdateScalars {
  float learning_rate;
  float step_size;     // learning_rate / bias1
  float inverse_root;  // 1 / sqrt(bias2)
  float clip;
  float apply;    // 1, or 0 where loss or gradients are not finite
  double update;  // number of this update, 1 for the first
};
// What the host says of a step before it, and what it reads of it later.
struct StepInputs {
  double learning_rate;
  double rows;     // of the step
  double targets;  // of the rows of this rank, without those that are ignored
};
struct StepOutputs {
  double loss;  // mean over the targets
  double gradient_norm;
  double applied;
  int64_t nonfinite;     // of find_nonfinite; -1: nothing found
  double targets;        // of the step
  double cross_entropy;  // of the loss, a mean likewise
  double divergence;     // from the teacher, 0 without one
};

// From the sums of a step to what its update needs, in f64 (bias_i = 1 - beta_i^step, with step =
// *updates + 1):
//   factor = rows / *targets; loss = *loss_sum / *targets; norm = factor * sqrt(*squared_norm);
//   with divergence_sum: loss = (1 - weight) * that + weight * *divergence_sum / *targets;
//   clip = factor * min(1, clip_norm / (norm + 1e-6)), without min where clip_norm is 0;
//   apply = loss and norm are finite; *updates += apply.
// So a step that is enqueued before the outcome of the one before it is known has the right number.
// All pointers are memory of the stream. record: nothing, it moves a hundred bytes.
struct PrepareUpdateArgs {
  const double* loss_sum = nullptr;
  const double* divergence_sum = nullptr;  // optional
  double divergence_weight = 0;
  const double* squared_norm = nullptr;
  const double* targets = nullptr;  // a whole number; with none nothing is applied
  const StepInputs* inputs = nullptr;
  double clip_norm = 0;
  float beta1 = 0.9F, beta2 = 0.95F;
  double* updates = nullptr;  // applied so far, a whole number
  UpdateScalars* scalars = nullptr;
  StepOutputs* outputs = nullptr;
};

// *found = the number of the last of the segments of x that has an element that is not finite,
// where there is one, it is above *found, and *scalars do not apply; else as it was. Segment i, of
// number first + i, is [ends[i-1], ends[i]), and that of i = 0 begins at 0; what lies behind the
// last is not looked at. All pointers are memory of the stream; costs nothing but the launch where
// the update applies. record: nothing.
struct FindNonfiniteArgs {
  Vector x;     // [n] f32
  Vector ends;  // [segments] i64, ascending, the last at most n
  int64_t first = 0;
  const UpdateScalars* scalars = nullptr;
  int64_t* found = nullptr;
};

// *total (in memory of the stream) = sum of x, or *total + that when accumulating; in f64, in a
// fixed order. record: nothing.
struct SumArgs {
  Vector x;  // [n] f32
  bool accumulate = false;
  double* total = nullptr;
};

// total[j] = sum over i of x[i * width + j], in f64 and the order of the rows: of a few numbers,
// such as those of each rank. Both are memory of the stream. record: nothing.
struct AddRowsArgs {
  const double* x = nullptr;  // [rows, width]
  int64_t rows = 0, width = 1;
  double* total = nullptr;  // [width], apart from x
};

// One step of AdamW (Loshchilov & Hutter 2019) over a flat range, reading and writing each array
// once:  g = gradient * clip;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
//        p -= lr * (m / bias1 / (sqrt(v / bias2) + eps) + decay * p)
// with bias_i = 1 - b_i^step. `weights`, when given, receives p in bf16. Decay applies to the
// segments that say so; segments are ascending and cover the range.
// A bf16 `master` is rounded after every step, from what f32 has of it: to nearest even, or, with
// `stochastic`, to one of its two neighbours with the probabilities that make the mean exact. Then
// element e of a tensor takes the half h = e % 8 of the Philox block (segment's key, e / 8, step):
// word h / 2, its lower 16 bits first. So neither the layout nor the order matters, and ranks that
// hold the same element round it alike.
// record "adamw": dims (count).
// With `scalars` what changes from step to step comes from memory of the stream, and where `apply`
// is 0 nothing is written.
struct AdamwSegment {
  int64_t first = 0;
  int64_t count = 0;
  float weight_decay = 0;
  // Which elements of a whole tensor these are, where rounding asks: of element i of the segment,
  // with j = phase + i, number + j / width * stride + j % width.
  struct Numbers {
    uint64_t key = 0;
    int64_t number = 0;
    int64_t width = 1;
    int64_t stride = 1;
    int64_t phase = 0;
  } numbers = {};
};
// Of the words of each array (u32; of weights u16) the sum modulo 2^32, as an update found it and
// as it left it, added to what is here: one changed bit changes a sum, the order of threads none.
struct AdamwSums {
  using Arrays = std::array<uint32_t, 4>;  // master, m, v, weights
  Arrays before{}, after{};
};
struct AdamwArgs {
  Vector gradient;      // [n] f32
  Vector master;        // [n] f32, or bf16 and no weights
  Vector m;             // [n] f32
  Vector v;             // [n] f32
  Vector weights = {};  // [n] bf16, optional
  std::span<const AdamwSegment> segments;
  float learning_rate = 0, beta1 = 0.9F, beta2 = 0.95F, epsilon = 1e-8F;
  float clip = 1;
  int64_t step = 1;  // 1 for the first update
  bool stochastic = false;
  // Of prepare_update; then learning_rate, clip and step are read there.
  const UpdateScalars* scalars = nullptr;
  // Optional, on the host; only where operands are there too, and not with `scalars`.
  AdamwSums* sums = nullptr;
};

// *sum_of_squares (in memory of the stream) = sum x^2 accumulated in f64 over fixed-size blocks, so
// the value does not depend on thread count. Non-finite elements make it non-finite.
// record "squared_norm": dims (count); flops 2*count.
struct SquaredNormArgs {
  Vector x;  // [n] f32
  double* sum_of_squares = nullptr;
};

// out = x converted to out's type (f32 <-> bf16), or copied.
// record "convert": dims (count).
struct ConvertArgs {
  Vector x;
  Vector out;
};

// out = x, or x + plus, row by row, converted to out's type.
// record "copy": dims (N, M); bytes of all operands.
struct CopyArgs {
  Matrix x;          // [N, M] f32 or bf16
  Matrix plus = {};  // [N, M] f32 or bf16, optional
  Matrix out;        // [N, M] f32 or bf16; may be x or plus where the type is the same
};

struct OpTable {
  const char* backend = "";
  void (*gemm)(Stream&, const GemmArgs&) = nullptr;
  void (*norm_forward)(Stream&, const NormForwardArgs&) = nullptr;
  void (*norm_backward_input)(Stream&, const NormBackwardInputArgs&) = nullptr;
  void (*norm_backward_weight)(Stream&, const NormBackwardWeightArgs&) = nullptr;
  void (*column_sum)(Stream&, const ColumnSumArgs&) = nullptr;
  void (*activation_forward)(Stream&, const ActivationForwardArgs&) = nullptr;
  void (*activation_backward)(Stream&, const ActivationBackwardArgs&) = nullptr;
  void (*rope)(Stream&, const RopeArgs&) = nullptr;
  void (*attention_forward)(Stream&, const AttentionForwardArgs&) = nullptr;
  void (*attention_backward)(Stream&, const AttentionBackwardArgs&) = nullptr;
  void (*attention_block_forward)(Stream&, const AttentionBlockForwardArgs&) = nullptr;
  void (*attention_block_backward)(Stream&, const AttentionBlockBackwardArgs&) = nullptr;
  void (*attention_decode)(Stream&, const AttentionDecodeArgs&) = nullptr;
  void (*embedding_forward)(Stream&, const EmbeddingForwardArgs&) = nullptr;
  void (*embedding_backward)(Stream&, const EmbeddingBackwardArgs&) = nullptr;
  void (*cross_entropy)(Stream&, const CrossEntropyArgs&) = nullptr;
  void (*distill_cross_entropy)(Stream&, const DistillCrossEntropyArgs&) = nullptr;
  void (*dropout)(Stream&, const DropoutArgs&) = nullptr;
  void (*adamw)(Stream&, const AdamwArgs&) = nullptr;
  void (*squared_norm)(Stream&, const SquaredNormArgs&) = nullptr;
  void (*sum)(Stream&, const SumArgs&) = nullptr;
  void (*prepare_update)(Stream&, const PrepareUpdateArgs&) = nullptr;
  void (*find_nonfinite)(Stream&, const FindNonfiniteArgs&) = nullptr;
  void (*convert)(Stream&, const ConvertArgs&) = nullptr;
  void (*copy)(Stream&, const CopyArgs&) = nullptr;
  // moe_ops.h
  void (*route_forward)(Stream&, const RouteForwardArgs&) = nullptr;
  void (*route_backward)(Stream&, const RouteBackwardArgs&) = nullptr;
  void (*assign_rows)(Stream&, const AssignRowsArgs&) = nullptr;
  void (*merge_counts)(Stream&, const MergeCountsArgs&) = nullptr;
  void (*permute)(Stream&, const PermuteArgs&) = nullptr;
  void (*unpermute)(Stream&, const UnpermuteArgs&) = nullptr;
  void (*grouped_gemm)(Stream&, const GroupedGemmArgs&) = nullptr;
  void (*grouped_gemm_weight)(Stream&, const GroupedGemmWeightArgs&) = nullptr;
  void (*update_selection_bias)(Stream&, const UpdateSelectionBiasArgs&) = nullptr;
  // vocabulary_ops.h
  void (*add_positions)(Stream&, const AddPositionsArgs&) = nullptr;
  void (*cross_entropy_shard)(Stream&, const CrossEntropyShardArgs&) = nullptr;
  void (*cross_entropy_merge)(Stream&, const CrossEntropyMergeArgs&) = nullptr;
  // narrow_ops.h
  void (*quantize)(Stream&, const QuantizeArgs&) = nullptr;
  void (*narrow_gemm)(Stream&, const NarrowGemmArgs&) = nullptr;
  void (*add_rows)(Stream&, const AddRowsArgs&) = nullptr;
};

}  // namespace tutti::engine
