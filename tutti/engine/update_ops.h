// Operations from the gradients of a step to its updated weights: part of the table in ops.h, whose
// rules apply here.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Scalars of an update that change from step to step, in stream memory, so that the host does not
// wait between the gradients and their update.
struct UpdateScalars {
  float learning_rate;
  float step_size;     // learning_rate / bias1
  float inverse_root;  // 1 / sqrt(bias2)
  float clip;
  float apply;    // 1, or 0 if loss or gradients are not finite
  double update;  // number of this update, 1 for the first
};
// Inputs that the host writes before a step, and outputs that it reads after it.
struct StepInputs {
  double learning_rate;
  double rows;     // of the step
  double targets;  // of the rows of this rank, without ignored ones
};
struct StepOutputs {
  double loss;  // mean over the targets
  double gradient_norm;
  double applied;
  int64_t nonfinite;     // result of find_nonfinite; -1: none
  double targets;        // of the step
  double cross_entropy;  // part of the loss, also a mean
  double divergence;     // from the teacher, 0 without a teacher
};

// Computes the scalars of an update from the sums of a step, in f64 (bias_i = 1 - beta_i^step, with
// step = *updates + 1):
//   factor = rows / *targets; loss = *loss_sum / *targets; norm = factor * sqrt(*squared_norm);
//   with divergence_sum: loss = (1 - weight) * that + weight * *divergence_sum / *targets;
//   clip = factor * min(1, clip_norm / (norm + 1e-6)), without min if clip_norm is 0;
//   apply = loss and norm are finite; *updates += apply.
// Counting on the device gives a step the right number even if it is enqueued before the host knows
// the outcome of the previous one. All pointers are stream memory. record: none, it moves a hundred
// bytes.
struct PrepareUpdateArgs {
  const double* loss_sum = nullptr;
  const double* divergence_sum = nullptr;  // optional
  double divergence_weight = 0;
  const double* squared_norm = nullptr;
  const double* targets = nullptr;  // an integer; 0: the update is not applied
  const StepInputs* inputs = nullptr;
  double clip_norm = 0;
  float beta1 = 0.9F, beta2 = 0.95F;
  double* updates = nullptr;  // applied so far, an integer
  UpdateScalars* scalars = nullptr;
  StepOutputs* outputs = nullptr;
};

// If scalars->apply is 0, *found = max(*found, number of the last segment of x with a non-finite
// element); otherwise *found is unchanged. Segment i has number first + i and is [ends[i-1],
// ends[i]), where segment 0 begins at 0; elements after the last segment are not read. All pointers
// are stream memory; if the update applies, the cost is the launch only. record: none.
struct FindNonfiniteArgs {
  Vector x;     // [n] f32
  Vector ends;  // [segments] i64, ascending, the last at most n
  int64_t first = 0;
  const UpdateScalars* scalars = nullptr;
  int64_t* found = nullptr;
};

// *total (stream memory) = sum of x, or *total + sum of x when accumulating; in f64, in a fixed
// order. record: none.
struct SumArgs {
  Vector x;  // [n] f32
  bool accumulate = false;
  double* total = nullptr;
};

// total[j] = sum over i of x[i * width + j], in f64 and in the order of the rows, for few numbers,
// such as one row per rank. Both are stream memory. record: none.
struct AddRowsArgs {
  const double* x = nullptr;  // [rows, width]
  int64_t rows = 0, width = 1;
  double* total = nullptr;  // [width], must not overlap x
};

// One step of AdamW (Loshchilov & Hutter 2019) over a flat range, reading and writing each array
// once:  g = gradient * clip;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
//        p -= lr * (m / bias1 / (sqrt(v / bias2) + eps) + decay * p)
// with bias_i = 1 - b_i^step. `weights`, if given, receives p in bf16. Each segment has its own
// decay; segments are ascending and cover the range.
// A bf16 `master` is rounded from the f32 result after every step: to nearest even, or, with
// `stochastic`, to one of its two neighbours with the probabilities that make the mean exact.
// Element e of a tensor then uses the half h = e % 8 of the Philox block (segment's key, e / 8,
// step): word h / 2, its lower 16 bits first. The result therefore does not depend on layout or
// order, and ranks that hold the same element round it alike.
// record "adamw": dims (count).
// With `scalars` the values that change from step to step come from stream memory, and nothing is
// written if scalars->apply is 0.
struct AdamwSegment {
  int64_t first = 0;
  int64_t count = 0;
  float weight_decay = 0;
  // Index of element i in the whole tensor, for stochastic rounding: with j = phase + i, number + j
  // / width * stride + j % width.
  struct Numbers {
    uint64_t key = 0;
    int64_t number = 0;
    int64_t width = 1;
    int64_t stride = 1;
    int64_t phase = 0;
  } numbers = {};
};
// Checksums of each array before and after an update: the sum of its words (u32; for weights u16)
// modulo 2^32, added to the values here. Any changed bit changes a sum; the order of threads does
// not.
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
  // Output of prepare_update; replaces learning_rate, clip and step.
  const UpdateScalars* scalars = nullptr;
  // Optional, host memory; only if the operands are host memory too.
  AdamwSums* sums = nullptr;
};

// *sum_of_squares (stream memory) = sum x^2 accumulated in f64 over fixed-size blocks, so the value
// does not depend on the thread count. Non-finite elements make it non-finite.
// record "squared_norm": dims (count); flops 2*count.
struct SquaredNormArgs {
  Vector x;  // [n] f32
  double* sum_of_squares = nullptr;
};

}  // namespace tutti::engine
