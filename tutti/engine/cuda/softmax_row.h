// The softmax of a row of logits and its gradients by one block, shared by the cross-entropies
// (cpu/softmax_row.h is the CPU version). Only for .cu files.
//
// Two passes: the first computes maximum and sum of exponentials, and rescales a thread's sum when
// its maximum grows; the second computes the gradient in ascending order, all threads together, and
// stores a stretch only after all threads have read it: element j of a bf16 row lies at or before
// element j of an f32 row that starts at the same address, so overlaid gradients never overwrite
// unread logits.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine {

// Threads per row of this many logits: a function of the operands only, so that the losses with and
// without a teacher are bitwise equal.
inline unsigned loss_threads(int64_t vocabulary) { return vocabulary >= 8192 ? 1024 : 256; }
inline constexpr int kMostLossThreads = 1024;

// softmax(x / T) of element j is exp((x[j] - highest) / T - log_sum). The two are kept separate
// because their sum would round: at logits of 1e4 by a thousandth.
struct RowSum {
  float highest;
  float log_sum;
  __device__ float log_sum_exp() const { return highest + log_sum; }  // with T = 1
  __device__ float log_softmax(float x, float inverse_temperature) const {
    return (x - highest) * inverse_temperature - log_sum;
  }
};

template <bool wide, typename T>
__device__ inline RowSum row_sum(const T* x, int64_t count, float inverse_temperature) {
  constexpr int V = kPieceOf<T>;
  float highest = -FLT_MAX;
  float total = 0;
  const int64_t stride = static_cast<int64_t>(blockDim.x) * V;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < count; j += stride) {
    float v[V];
    load_piece<V, wide>(x + j, count - j, -INFINITY, v);
    float most = v[0];
#pragma unroll
    for (int i = 1; i < V; ++i) most = fmaxf(most, v[i]);
    if (most > highest) {
      total *= expf((highest - most) * inverse_temperature);
      highest = most;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) total += expf((v[i] - highest) * inverse_temperature);
  }
  const float of_all = block_max(highest, -FLT_MAX);
  total = block_sum(total * expf((highest - of_all) * inverse_temperature));
  return {of_all, logf(total)};
}

// d[j] = gradient(x[j], j) for j < count, in stretches that all threads read before any thread
// stores.
template <bool wide, typename From, typename To, typename Gradient>
__device__ inline void store_gradient(const From* x, To* d, int64_t count,
                                      const Gradient& gradient) {
  constexpr int V = kPieceOf<From>;
  const int64_t stretch = static_cast<int64_t>(blockDim.x) * V;
  for (int64_t begin = 0; begin < count; begin += stretch) {
    const int64_t j = begin + static_cast<int64_t>(threadIdx.x) * V;
    float v[V];
    if (j < count) load_piece<V, wide>(x + j, count - j, 0, v);
    if constexpr (sizeof(To) != sizeof(From)) __syncthreads();
    if (j < count) {
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] = gradient(v[i], j + i);
      store_piece<V, wide>(v, d + j, count - j);
    }
  }
  if constexpr (sizeof(To) != sizeof(From)) __syncthreads();
}

// d[begin, end) = 0. Call after store_gradient, because d may overlay logits.
template <typename To>
__device__ inline void clear(To* d, int64_t begin, int64_t end) {
  for (int64_t j = begin + threadIdx.x; j < end; j += blockDim.x) narrow(0.0F, d[j]);
}

// scale * (softmax - onehot) of a row whose cross-entropy is `loss`; target < 0: without onehot.
struct CrossEntropyGradient {
  float lse, scale, at_target;
  int64_t target;
  __device__ CrossEntropyGradient(float lse_, float loss, int64_t target_, float scale_)
      : lse(lse_), scale(scale_), at_target(scale_ * (expf(-loss) - 1.0F)), target(target_) {}
  __device__ float operator()(float x, int64_t j) const {
    return j == target ? at_target : expf(x - lse) * scale;
  }
};

// Whether logits, and gradients if any, allow vector loads and stores.
template <typename From>
bool loss_rows_wide(const Matrix& logits, const Matrix& d) {
  return all_wide(kPieceOf<From>, logits, d);
}

// Calls body(From(), To()) with the types of logits and gradient (without one: that of the logits).
template <typename Body>
void with_loss_types(const Matrix& logits, const Matrix& d, const Body& body) {
  with_dtype(logits.dtype, [&](auto from) {
    with_dtype(d ? d.dtype : logits.dtype, [&](auto to) { body(from, to); });
  });
}

}  // namespace tutti::engine
