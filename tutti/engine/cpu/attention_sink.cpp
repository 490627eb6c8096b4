// Attention sinks (attention_ops.h states the contract). lse holds the sum of a row's weights, so a
// sink only scales the result of attention without it.
//   m = max(lse, sink):  lse' = m + log(e^(lse - m) + e^(sink - m))
#include <algorithm>
#include <cmath>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int64_t kSinkRowGrain = 16;

float element(const Vector& x, int64_t i) {
  return x.dtype == DType::bf16 ? to_f32(x.as<bf16>()[i]) : x.as<float>()[i];
}

void scale(float* x, int64_t count, float factor) {
  for (int64_t j = 0; j < count; ++j) x[j] *= factor;
}
void scale(bf16* x, int64_t count, float factor) {
  for (int64_t j = 0; j < count; ++j) x[j] = to_bf16(to_f32(x[j]) * factor);
}

template <typename T>
void sink_forward_row(const AttentionSinkForwardArgs& args, int64_t n) {
  for (int64_t a = 0; a < args.heads; ++a) {
    const int64_t at = (n / args.rows * args.heads + a) * args.rows + n % args.rows;
    float& lse = args.lse.as<float>()[at];
    const float sink = element(args.sinks, a);
    const float most = std::max(lse, sink);
    const float all = most + std::log(std::exp(lse - most) + std::exp(sink - most));
    scale(args.out.row<T>(n) + a * args.head_dim, args.head_dim, std::exp(lse - all));
    lse = all;
  }
}

}  // namespace

void cpu_attention_sink_forward(Stream& stream, const AttentionSinkForwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  parallel_ranges(args.out.rows, kSinkRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t n = first; n < last; ++n) {
      if (args.out.dtype == DType::bf16) {
        sink_forward_row<bf16>(args, n);
      } else {
        sink_forward_row<float>(args, n);
      }
    }
  });
  record(stream, what, begin);
}

void cpu_attention_sink_backward(Stream& stream, const AttentionSinkBackwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const auto* lse = args.lse.as<float>();
  const auto* delta = args.delta.as<float>();
  auto* out = args.d_sinks.as<float>();
  parallel_ranges(args.heads, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t a = first; a < last; ++a) {
      const float sink = element(args.sinks, a);
      double sum = 0;
      for (int64_t b = 0; b < args.batch; ++b) {
        for (int64_t t = 0; t < args.rows; ++t) {
          const int64_t at = (b * args.heads + a) * args.rows + t;
          sum += static_cast<double>(std::exp(sink - lse[at]) * delta[at]);
        }
      }
      out[a] = (args.beta == 0 ? 0 : out[a]) - static_cast<float>(sum);
    }
  });
  record(stream, what, begin);
}

}  // namespace tutti::engine
