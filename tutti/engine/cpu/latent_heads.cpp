// Keys and values of latent attention from what projections left (attention_ops.h states the
// contract): copies, and in the backward pass sums over heads.
#include <algorithm>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int64_t kLatentRowGrain = 8;

template <typename T>
void latent_row(const LatentHeadsArgs& args, int64_t n) {
  const T* up = args.up.row<T>(n);
  const T* shared = args.shared.row<T>(n);
  T* key = args.keys.row<T>(n);
  T* value = args.values.row<T>(n);
  for (int64_t a = 0; a < args.heads; ++a) {
    key = std::copy_n(shared, args.shared_dim, key);
    key = std::copy_n(up, args.head_dim, key);
    value = std::copy_n(up + args.head_dim, args.value_dim, value);
    up += args.head_dim + args.value_dim;
  }
}

float number(float x) { return x; }
float number(bf16 x) { return to_f32(x); }
void put(float* to, float x) { *to = x; }
void put(bf16* to, float x) { *to = to_bf16(x); }

template <typename T>
void latent_row_backward(const LatentHeadsBackwardArgs& args, int64_t n) {
  const int64_t width = args.shared_dim + args.head_dim;
  const T* d_key = args.d_keys.row<T>(n);
  const T* d_value = args.d_values.row<T>(n);
  T* d_up = args.d_up.row<T>(n);
  T* d_shared = args.d_shared.row<T>(n);
  for (int64_t j = 0; j < args.shared_dim; ++j) {
    float sum = 0;
    for (int64_t a = 0; a < args.heads; ++a) sum += number(d_key[a * width + j]);
    put(d_shared + j, sum);
  }
  for (int64_t a = 0; a < args.heads; ++a) {
    d_up = std::copy_n(d_key + a * width + args.shared_dim, args.head_dim, d_up);
    d_up = std::copy_n(d_value + a * args.value_dim, args.value_dim, d_up);
  }
}

}  // namespace

void cpu_latent_heads(Stream& stream, const LatentHeadsArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  parallel_ranges(args.up.rows, kLatentRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t n = first; n < last; ++n) {
      if (args.up.dtype == DType::bf16) {
        latent_row<bf16>(args, n);
      } else {
        latent_row<float>(args, n);
      }
    }
  });
  record(stream, what, begin);
}

void cpu_latent_heads_backward(Stream& stream, const LatentHeadsBackwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  parallel_ranges(args.d_up.rows, kLatentRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t n = first; n < last; ++n) {
      if (args.d_up.dtype == DType::bf16) {
        latent_row_backward<bf16>(args, n);
      } else {
        latent_row_backward<float>(args, n);
      }
    }
  });
  record(stream, what, begin);
}

}  // namespace tutti::engine
