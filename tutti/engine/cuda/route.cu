// Softmax, top-k choice and weights of a router and their gradients, and the update of its
// selection biases (moe_ops.h states the contracts, cpu/route.cpp the formulas). One warp per row;
// a lane has every 32nd expert.
#include <algorithm>
#include <climits>

#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kMostExperts = 64 * 32;  // a lane marks its chosen experts in 64 bits

__device__ int64_t warp_row() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}
dim3 warp_rows(int64_t rows) { return dim3(blocks_for(rows, kWarps)); }

struct Forward {
  Rows<const float> logits;
  const float* bias_f32;  // at most one of the two
  const bf16* bias_bf16;
  Rows<float> probabilities;
  float* lse;
  Rows<int32_t> experts;
  Rows<float> weights;
  int64_t rows, count;
  int choices;
  bool given;
  bool renormalize;

  __device__ float bias(int64_t e) const {
    if (bias_f32 != nullptr) return bias_f32[e];
    return bias_bf16 != nullptr ? widen(bias_bf16[e]) : 0;
  }
};

struct Scored {
  float score;
  int expert;  // INT_MAX: none
};
// The larger score; ties go to the lower expert. NaN is below every number.
__device__ Scored better(Scored a, Scored b) {
  if (a.expert == INT_MAX) return b;
  if (b.expert == INT_MAX) return a;
  const bool a_number = a.score == a.score;
  const bool b_number = b.score == b.score;
  if (a_number != b_number) return a_number ? a : b;
  if (a_number && a.score != b.score) return a.score > b.score ? a : b;
  return a.expert < b.expert ? a : b;
}
__device__ Scored warp_best(Scored best) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    best = better(best, {__shfl_xor_sync(kAllLanes, best.score, apart),
                         __shfl_xor_sync(kAllLanes, best.expert, apart)});
  }
  return best;
}

__global__ void __launch_bounds__(kThreads) forward_kernel(Forward f) {
  const int64_t n = warp_row();
  if (n >= f.rows) return;
  const int lane = threadIdx.x % 32;
  const float* x = f.logits.row(n);
  float* p = f.probabilities.row(n);
  int32_t* chosen = f.experts.row(n);
  float highest = -INFINITY;
  for (int64_t e = lane; e < f.count; e += 32) highest = fmaxf(highest, x[e]);
  highest = warp_reduce<Max>(highest);
  float sum = 0;
  for (int64_t e = lane; e < f.count; e += 32) {
    const float value = expf(x[e] - highest);
    p[e] = value;  // may overlay x: only this lane reads x[e]
    sum += value;
  }
  sum = warp_reduce<Sum>(sum);
  if (lane == 0) f.lse[n] = highest + logf(sum);
  for (int64_t e = lane; e < f.count; e += 32) p[e] /= sum;
  __syncwarp();

  float chosen_sum = 0;
  uint64_t taken = 0;  // bit i: expert lane + 32 i
  for (int i = 0; i < f.choices; ++i) {
    int expert;
    if (f.given) {
      expert = chosen[i];
      if (expert < 0 || expert >= f.count) device_fail("route_forward: given expert", expert, n);
    } else {
      Scored best{0, INT_MAX};
      for (int64_t e = lane; e < f.count; e += 32) {
        if ((taken >> (e / 32) & 1) != 0) continue;
        best = better(best, {p[e] + f.bias(e), static_cast<int>(e)});
      }
      expert = warp_best(best).expert;
      if (expert % 32 == lane) taken |= uint64_t{1} << (expert / 32);
      if (lane == 0) chosen[i] = expert;
    }
    chosen_sum += p[expert];
  }
  __syncwarp();
  const float divisor = f.renormalize ? chosen_sum : 1;
  for (int i = lane; i < f.choices; i += 32) f.weights.row(n)[i] = p[chosen[i]] / divisor;
}

struct Backward {
  Rows<const float> probabilities;
  const float* lse;
  Rows<const int32_t> experts;
  Rows<const float> weights;
  Rows<const float> d_weights;
  Rows<const int32_t> counts;
  Rows<const int32_t> positions;
  int64_t rows, count, tokens;  // tokens: rows of a sequence
  int64_t first_row;            // of these rows in the rows of all sequences
  double length;                // of the whole sequence
  int choices;
  float balance_scale, z_scale;
  bool renormalize;
  double* slopes;  // [B, E]: gradient of the balance loss with respect to each probability
  double* losses;  // [B, E]: an expert's part of a sequence's balance loss
};

// Sequence blockIdx.y, 32 experts from 32 * blockIdx.x on: threads (expert, part of the rows).
constexpr int kSlopeParts = 16;
__global__ void slopes_kernel(Backward b) {
  __shared__ double parts[kSlopeParts][32];
  const int64_t e = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t sequence = blockIdx.y;
  double sum = 0;
  if (e < b.count) {
    const int64_t first = max(sequence * b.tokens - b.first_row, int64_t{0});
    const int64_t last = min((sequence + 1) * b.tokens - b.first_row, b.rows);
    for (int64_t t = first + threadIdx.y; t < last; t += kSlopeParts) {
      sum += static_cast<double>(b.probabilities.row(t)[e]);
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || e >= b.count) return;
  for (int part = 1; part < kSlopeParts; ++part) sum += parts[part][threadIdx.x];
  const double share =
      static_cast<double>(b.count) * static_cast<double>(b.counts.row(sequence)[e]) / b.length;
  b.losses[sequence * b.count + e] = share * sum / b.length;
  b.slopes[sequence * b.count + e] = share / b.length;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward b, Rows<T> d_logits) {
  const int64_t n = warp_row();
  if (n >= b.rows) return;
  const int lane = threadIdx.x % 32;
  const float* p = b.probabilities.row(n);
  const int32_t* chosen = b.experts.row(n);
  const float* w = b.weights.row(n);
  const float* dw = b.d_weights.row(n);
  const double* slope = b.slopes + (b.first_row + n) / b.tokens * b.count;
  float chosen_sum = 0;
  float dot = 0;
  for (int i = 0; i < b.choices; ++i) {
    chosen_sum += p[chosen[i]];
    dot += dw[i] * w[i];
  }
  if (!b.renormalize) {
    chosen_sum = 1;
    dot = 0;
  }
  float mean = 0;  // sum of dp p
  for (int64_t e = lane; e < b.count; e += 32) {
    mean += b.balance_scale * static_cast<float>(slope[e]) * p[e];
  }
  mean = warp_reduce<Sum>(mean);
  for (int i = 0; i < b.choices; ++i) mean += (dw[i] - dot) / chosen_sum * p[chosen[i]];
  const float z = 2 * b.z_scale * b.lse[n];
  T* d = d_logits.row(n);
  for (int64_t e = lane; e < b.count; e += 32) {
    float dp = b.balance_scale * static_cast<float>(slope[e]);
    for (int i = 0; i < b.choices; ++i) {
      if (chosen[i] == e) dp += (dw[i] - dot) / chosen_sum;
    }
    narrow(p[e] * (dp - mean + z), d[e]);
  }
}

// One block: load[e] += choices of e, sums += {balance, z, dropped}.
constexpr int kTotalThreads = 1024;
__global__ void __launch_bounds__(kTotalThreads)
    totals_kernel(Backward b, int64_t sequences, float beta, int32_t* load_counts, float* load,
                  float* sums) {
  for (int64_t e = threadIdx.x; e < b.count; e += kTotalThreads) load_counts[e] = 0;
  __syncthreads();
  double dropped = 0;
  for (int64_t at = threadIdx.x; at < b.rows * b.choices; at += kTotalThreads) {
    atomicAdd(load_counts + b.experts.row(at / b.choices)[at % b.choices], 1);  // integers: exact
    if (b.positions.row(at / b.choices)[at % b.choices] < 0) dropped += 1;
  }
  dropped = block_sum(dropped);
  double balance = 0;
  for (int64_t at = threadIdx.x; at < sequences * b.count; at += kTotalThreads) {
    balance += b.losses[at];
  }
  balance = block_sum(balance);
  double z = 0;
  for (int64_t n = threadIdx.x; n < b.rows; n += kTotalThreads) {
    const auto lse = static_cast<double>(b.lse[n]);
    z += lse * lse;
  }
  z = block_sum(z);  // also synchronises: all counts are complete
  for (int64_t e = threadIdx.x; e < b.count; e += kTotalThreads) {
    load[e] = (beta == 0 ? 0 : load[e]) + static_cast<float>(load_counts[e]);
  }
  if (threadIdx.x != 0) return;
  sums[0] = (beta == 0 ? 0 : sums[0]) + static_cast<float>(balance);
  sums[1] = (beta == 0 ? 0 : sums[1]) + static_cast<float>(z);
  sums[2] = (beta == 0 ? 0 : sums[2]) + static_cast<float>(dropped);
}

__global__ void __launch_bounds__(kTotalThreads)
    selection_bias_kernel(const float* load, int64_t experts, int64_t first, float* bias,
                          int64_t count, bf16* weights, float rate, const UpdateScalars* scalars) {
  if (scalars != nullptr && scalars->apply == 0) return;
  double sum = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kTotalThreads) {
    sum += static_cast<double>(load[e]);
  }
  const double mean = block_sum(sum) / static_cast<double>(experts);
  for (int64_t e = threadIdx.x; e < count; e += kTotalThreads) {
    const double missing = mean - static_cast<double>(load[first + e]);
    const float moved = bias[e] + (missing > 0 ? rate : missing < 0 ? -rate : 0);
    bias[e] = moved;
    if (weights != nullptr) narrow(moved, weights[e]);
  }
}

void check_experts(const char* op, int64_t experts) {
  TUTTI_CHECK(experts <= kMostExperts, "{}: {} experts, at most {}", op, experts, kMostExperts);
}

template <typename Args>
void check_scores(const char* op, const Args& args) {
  TUTTI_CHECK(args.scores == RouterScores::softmax && args.factor == 1,
              "{}: sigmoid scores or a factor of weights on cuda", op);
}

}  // namespace

void cuda_route_forward(Stream& stream, const RouteForwardArgs& args) {
  const OpRecord what = describe(args);
  check_experts(what.op, args.logits.cols);
  check_scores(what.op, args);
  TUTTI_CHECK(args.groups.count == 1, "{}: groups of experts on cuda", what.op);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const bool narrow_bias = args.bias && args.bias.dtype == DType::bf16;
  const Forward f{.logits = rows_of<const float>(args.logits),
                  .bias_f32 = args.bias && !narrow_bias ? args.bias.as<float>() : nullptr,
                  .bias_bf16 = narrow_bias ? args.bias.as<bf16>() : nullptr,
                  .probabilities = rows_of<float>(args.probabilities),
                  .lse = args.lse.as<float>(),
                  .experts = rows_of<int32_t>(args.experts),
                  .weights = rows_of<float>(args.weights),
                  .rows = args.logits.rows,
                  .count = args.logits.cols,
                  .choices = static_cast<int>(args.experts.cols),
                  .given = args.given,
                  .renormalize = args.renormalize};
  if (f.count > 0) launch(cuda, what.op, forward_kernel, warp_rows(f.rows), dim3(kThreads), 0, f);
  record(cuda, what, begin);
}

void cuda_route_backward(Stream& stream, const RouteBackwardArgs& args) {
  const OpRecord what = describe(args);
  check_experts(what.op, args.probabilities.cols);
  check_scores(what.op, args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t sequences = args.counts.rows;
  const int64_t experts = args.probabilities.cols;
  const int64_t tokens = args.rows_each > 0
                             ? args.rows_each
                             : args.probabilities.rows / std::max<int64_t>(sequences, 1);
  auto* slopes = static_cast<double*>(cuda.workspace((2 * sequences * 8 + 4) * experts));
  Backward b{.probabilities = rows_of<const float>(args.probabilities),
             .lse = args.lse.as<float>(),
             .experts = rows_of<const int32_t>(args.experts),
             .weights = rows_of<const float>(args.weights),
             .d_weights = rows_of<const float>(args.d_weights),
             .counts = rows_of<const int32_t>(args.counts),
             .positions = rows_of<const int32_t>(args.positions),
             .rows = args.probabilities.rows,
             .count = experts,
             .tokens = tokens,
             .first_row = args.first_row,
             .length = static_cast<double>(args.sequence > 0 ? args.sequence : tokens),
             .choices = static_cast<int>(args.experts.cols),
             .balance_scale = args.balance_scale,
             .z_scale = args.z_scale,
             .renormalize = args.renormalize,
             .slopes = slopes,
             .losses = slopes + sequences * experts};
  launch(cuda, what.op, slopes_kernel,
         dim3(blocks_for(experts, 32), static_cast<unsigned>(sequences)), dim3(32, kSlopeParts), 0,
         b);
  with_dtype(args.d_logits.dtype, [&](auto type) {
    using T = decltype(type);
    launch(cuda, what.op, backward_kernel<T>, warp_rows(b.rows), dim3(kThreads), 0, b,
           rows_of<T>(args.d_logits));
  });
  auto* load_counts = reinterpret_cast<int32_t*>(slopes + 2 * sequences * experts);
  launch(cuda, what.op, totals_kernel, dim3(1), dim3(kTotalThreads), 0, b, sequences, args.beta,
         load_counts, args.load.as<float>(), args.sums.as<float>());
  record(cuda, what, begin);
}

void cuda_update_selection_bias(Stream& stream, const UpdateSelectionBiasArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  launch(cuda, what.op, selection_bias_kernel, dim3(args.bias.count > 0 ? 1 : 0),
         dim3(kTotalThreads), 0, args.load.as<float>(), args.load.count, args.first,
         args.bias.as<float>(), args.bias.count, data_of<bf16>(args.weights), args.rate,
         args.scalars);
  record(cuda, what, begin);
}

}  // namespace tutti::engine
