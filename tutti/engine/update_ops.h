// The operations between a step's gradients and its new weights: part of the table in ops.h, whose
// rules hold here too.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

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
  // Optional, on the host; only where operands are there too.
  AdamwSums* sums = nullptr;
};

// *sum_of_squares (in memory of the stream) = sum x^2 accumulated in f64 over fixed-size blocks, so
// the value does not depend on thread count. Non-finite elements make it non-finite.
// record "squared_norm": dims (count); flops 2*count.
struct SquaredNormArgs {
  Vector x;  // [n] f32
  double* sum_of_squares = nullptr;
};

}  // namespace tutti::engine
