// The operations a backend provides, as one table of functions. Shared code calls
// `stream.ops().gemm(stream, {...})` and never depends on the backend.
//
// Shape letters: B sequences, T tokens of a sequence, N = B*T rows of a micro-batch, H hidden,
// F feed-forward width, V vocabulary, D head size, A query heads, K key/value heads.
//
// Rules for every operation:
// - It is enqueued on the stream (on the CPU: complete when the call returns) and never allocates
//   after its first call with given shapes.
// - Compute types are f32 and bf16 ("c" below: all operands marked c share one type); sums are
//   accumulated in f32, and the result depends only on the operands and the thread count.
// - Empty shapes (a zero dimension) are valid and do nothing.
// - If the stream has a Recorder, each call adds one OpRecord; "record:" states its dims. flops are
//   0 unless stated; bytes count each operand read once and each result written once, an
//   accumulated result twice; optional operands count if present, except `amax`.
// - `amax` [1] f32, optional, receives the largest magnitude of a result as stored, computed in the
//   pass that writes it, for a later quantize (Magnitude of narrow_ops.h). 0 for an empty result.
#pragma once

#include <cstdint>

#include "tutti/engine/attention_ops.h"
#include "tutti/engine/decode_ops.h"
#include "tutti/engine/moe_ops.h"
#include "tutti/engine/narrow_ops.h"
#include "tutti/engine/norm_ops.h"
#include "tutti/engine/tensor.h"
#include "tutti/engine/update_ops.h"
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
// weight, rstd = 1 / sqrt(mean(x^2) + epsilon) (mean and bias unused). `offset` is added to the
// weights; a non-zero one on the CPU only.
enum class NormKind { layer, rms };

// residual_out = residual_in + branch (f32; residual_out may be residual_in); without a branch
// residual_out is not written and residual_in is normalised. y[N,H] (c) = norm(residual).
// mean, rstd [N] f32 are saved for the backward pass (mean empty for RMSNorm; both may be empty if
// there is no backward pass).
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
  float offset = 0;  // of the weights, see NormKind
  Vector amax = {};  // of y
};

// d_residual (+)= gradient of the normalised residual through the norm. With accumulate false
// d_residual is overwritten. d_branch, when given, receives a copy of the final d_residual in c
// (the gradient of the branch that was added). With d_weight it also does what norm_backward_weight
// does, in the same pass over dy and residual if a row and its sums fit in registers.
// record "norm_backward_input": dims (N, H); bytes: with d_weight also the sums.
struct NormBackwardInputArgs {
  NormKind kind = NormKind::layer;
  Matrix dy;         // [N, H] c
  Matrix residual;   // [N, H] f32: the input of the norm
  Vector weight;     // [H] c
  Vector mean = {};  // [N] f32
  Vector rstd;       // [N] f32
  bool accumulate = true;
  Matrix d_residual;     // [N, H] f32
  Matrix d_branch = {};  // [N, H] c, optional
  Vector amax = {};      // of d_branch
  float beta = 1;        // of d_weight and d_bias
  Vector d_weight = {};  // [H] f32, optional
  Vector d_bias = {};    // [H] f32, optional, only with d_weight
  float offset = 0;      // of the weights
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
// (bias [2F] optional); geglu: the same with gelu_tanh(gate); clamped_swiglu (gpt-oss): y =
// (clamp(up, -7, 7) + 1) * g * sigmoid(1.702 g), g = min(gate, 7). The last two are CPU only.
// gelu_tanh(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
// record "activation_forward": dims (N, F).
enum class Activation { gelu, swiglu, geglu, clamped_swiglu };
struct ActivationForwardArgs {
  Activation kind = Activation::gelu;
  Matrix x;          // [N, F] or [N, 2F] c
  Vector bias = {};  // c
  Matrix y;          // [N, F] c
  Vector amax = {};  // of y
};

// dx = dy * derivative at x + bias. gelu: dx may be dy. For the others dx [N, 2F] may be x.
// record "activation_backward": dims (N, F).
struct ActivationBackwardArgs {
  Activation kind = Activation::gelu;
  Matrix x;
  Vector bias = {};
  Matrix dy;         // [N, F] c
  Matrix dx;         // [N, F] or [N, 2F] c
  Vector amax = {};  // of dx
};

// Rotates pairs (i, i + R/2) of each of the first `heads` D-wide column groups of x in place by
// position * inverse_frequency[i] ("rotate half", as Hugging Face Llama), where R = rotated columns
// of D, and multiplies them by `amplitude`. The position of row r is positions[r] if given, else
// first_position + r % sequence. inverse = true applies the transpose: the opposite rotation with
// the same amplitude (backward).
// record "rope": dims (N, heads, D); bytes of the rotated columns.
struct RopeArgs {
  Matrix x;  // [N, >= heads*D] c
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rotated = 0;  // R, even; 0: D
  float amplitude = 1;
  int64_t sequence = 0;      // T
  Vector inverse_frequency;  // [R/2] f32
  Vector positions = {};     // [N] i32, optional
  int64_t first_position = 0;
  bool inverse = false;
};

// out[r] = token_table[tokens[r]] (+ position_table[first_position + r % sequence], or
// positions[r] where given). out is f32, or c.
// If the rows of the table are sharded across ranks (`vocabulary` is their total), token_table
// holds tokens [first_token, first_token + V), and out is zero for other tokens.
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
  int64_t vocabulary = 0;  // 0: the table is complete
};

// d_token_table[tokens[r]] += d_out[r]; d_position_table[positions[r] or r % sequence] += d_out[r].
// Either table may be empty. Deterministic: rows are added in ascending r. beta 0 zeroes the whole
// tables first. first_token and vocabulary as forward: tokens of other ranks add nothing.
// record "embedding_backward": dims (N, H); bytes: N*H of d_out read, and N*H f32 accumulated per
// table (so twice; also for tokens of other ranks), N tokens, and N positions if given; beta 0 adds
// one write of each whole table.
struct EmbeddingBackwardArgs {
  Vector tokens = {};  // [N] i32, with d_token_table
  int64_t sequence = 0;
  Vector positions = {};  // [N] i32, optional
  Matrix d_out;           // [N, H] f32 or bf16
  float token_beta = 1;   // 1 if d_token_table already holds the tied head's gradient
  float position_beta = 1;
  Matrix d_token_table = {};     // [V, H] f32
  Matrix d_position_table = {};  // [context, H] f32, optional
  int64_t first_token = 0;
  int64_t vocabulary = 0;
  int64_t first_row = 0;  // row r counts as row first_row + r of the micro-batch
};

// Per row r: loss[r] = logsumexp(logits[r, :V]) - logits[r, target] in f32. A target < 0 is
// ignored: its loss and gradient are 0. If d_logits is given, writes the gradient gradient_scale *
// (softmax - onehot) there, zero in columns [V, d_logits.cols). d_logits may be the same memory as
// logits, also with another element type (bf16 rows at the start of f32 rows: ld in elements
// doubles). The vocabulary is read in chunks, without row-sized scratch.
// softcap > 0: logits are the output of the operation softcap, and d_logits is the gradient of its
// input: times 1 - (logits / softcap)^2.
// record "cross_entropy": dims (rows, V); bytes: logits, targets, loss, d_logits.
struct CrossEntropyArgs {
  Matrix logits;  // [n, >= V] f32 or c
  int64_t vocabulary = 0;
  Vector targets;  // [n] i32
  float gradient_scale = 1;
  Vector loss;           // [n] f32
  Matrix d_logits = {};  // [n, >= V] c, optional
  float softcap = 0;     // CPU only
};

// Knowledge distillation (Hinton et al. 2015): cross-entropy and the divergence from a teacher, per
// row r, with p_T(x) = softmax(x[:V] / T):
//   loss[r] = bitwise the loss of cross_entropy;
//   divergence[r] = T^2 KL(p_T(teacher_logits[r]) || p_T(logits[r]));
// both 0 for ignored targets. If d_logits is given, writes gradient_scale times the gradient of
// (1 - weight) * loss + weight * divergence,
//   (1 - weight) (p_1(logits) - onehot) + weight T (p_T(logits) - p_T(teacher_logits)),
// and zero for ignored targets and in columns [V, d_logits.cols); with weight 0 it equals that of
// cross_entropy bitwise. d_logits may overlay logits as there, never teacher_logits.
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

// Multiplies x by mask/(1-p), in place or into `out`. The Philox word of (key, first_row + r,
// first_column + j) decides whether element (r, j) is dropped, or of (key, first_row + rows[r],
// ...) if rows are not consecutive, so the same call applies the same mask forward and backward.
// record "dropout": dims (N, M); bytes of x read and written, and of rows.
struct DropoutArgs {
  Matrix x;  // [N, M] f32 or bf16
  float probability = 0;
  uint64_t key = 0;
  int64_t first_row = 0;
  Vector rows = {};  // [N] i32, optional
  Matrix out = {};   // [N, M] of x's type, optional; x is then not written
  int64_t first_column = 0;
};

// out = x converted to out's type (f32 <-> bf16), or copied.
// record "convert": dims (count).
struct ConvertArgs {
  Vector x;
  Vector out;
};

// out = x, or x + plus, or scale * x, row by row, converted to out's type.
// record "copy": dims (N, M); bytes of all operands.
struct CopyArgs {
  Matrix x;          // [N, M] f32 or bf16
  Matrix plus = {};  // [N, M] f32 or bf16, optional
  Matrix out;        // [N, M] f32 or bf16; may be x or plus if the type is the same
  float scale = 1;   // 1 with plus; other values on the CPU only
};

// The operations of a backend. Optional ones of ops.def may be null: the backend then rejects
// recipes that need them (spec/recipe/executable.cpp).
struct OpTable {
  const char* backend = "";
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define TUTTI_OP(name, Args) void (*name)(Stream&, const Args&) = nullptr;
#include "tutti/engine/ops.def"
};

}  // namespace tutti::engine
