#include "tutti/node/product_probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/quantile.h"
#include "tutti/base/rng.h"
#include "tutti/engine/arena.h"

namespace tutti::node {
namespace {

constexpr int kLeastProducts = 10;
constexpr int kEntries = 64;
// Of the sum of |a b|: far above the rounding of f32 sums, far below a wrong exponent or sign.
constexpr double kRounding = 1e-4;
constexpr uint64_t kSeed = 11;

float value_at(uint64_t stream, int64_t index) {
  return uniform01(philox(kSeed + stream, static_cast<uint64_t>(index))[0]) - 0.5F;
}

void fill(const engine::Matrix& matrix, uint64_t stream) {
  for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
    if (matrix.dtype == DType::bf16) {
      matrix.as<bf16>()[i] = to_bf16(value_at(stream, i));
    } else {
      matrix.as<float>()[i] = value_at(stream, i);
    }
  }
}

double element(const engine::Matrix& matrix, int64_t row, int64_t column) {
  const int64_t at = row * matrix.ld + column;
  return matrix.dtype == DType::bf16 ? static_cast<double>(to_f32(matrix.as<bf16>()[at]))
                                     : static_cast<double>(matrix.as<float>()[at]);
}

int64_t wrong_entries(const engine::Matrix& a, const engine::Matrix& b, const engine::Matrix& c) {
  int64_t wrong = 0;
  for (uint64_t draw = 0; draw < kEntries; ++draw) {
    const auto random = philox(kSeed + 2, draw);
    const int64_t row = random[0] % c.rows;
    const int64_t column = random[1] % c.cols;
    double exact = 0;
    double weight = 0;
    for (int64_t k = 0; k < a.cols; ++k) {
      const double term = element(a, row, k) * element(b, k, column);
      exact += term;
      weight += std::abs(term);
    }
    // Written so that a NaN is wrong.
    if (!(std::abs(element(c, row, column) - exact) <= kRounding * weight)) ++wrong;
  }
  return wrong;
}

// A few milliseconds on any number of cores.
int64_t size_for(int threads) {
  const double size = 640 * std::cbrt(static_cast<double>(std::max(1, threads)));
  return std::clamp<int64_t>(static_cast<int64_t>(size) / 64 * 64, 640, 4096);
}

}  // namespace

double ProductProbe::flops_per_second() const {
  const auto s = static_cast<double>(size);
  return 2 * s * s * s / quantile(seconds, 0.1);
}

ProductProbe probe_product(engine::Stream& stream, DType dtype, double seconds) {
  ProductProbe out;
  out.size = size_for(stream.threads());
  const int64_t s = out.size;
  const engine::Arena a_data("probe a", s * s * dtype_bytes(dtype));
  const engine::Arena b_data("probe b", s * s * dtype_bytes(dtype));
  const engine::Arena c_data("probe c", s * s * dtype_bytes(DType::f32));
  const engine::Arena first_data("probe first", s * s * dtype_bytes(DType::f32));
  const engine::Matrix a = {a_data.data(), dtype, s, s, s};
  const engine::Matrix b = {b_data.data(), dtype, s, s, s};
  const engine::Matrix first = {first_data.data(), DType::f32, s, s, s};
  const engine::Matrix c = {c_data.data(), DType::f32, s, s, s};
  fill(a, 0);
  fill(b, 1);
  const auto multiply = [&](const engine::Matrix& result) {
    engine::GemmArgs args;
    args.a = a;
    args.b = b;
    args.c = result;
    stream.ops().gemm(stream, args);
    stream.synchronize();
  };
  multiply(first);
  out.wrong = wrong_entries(a, b, first);
  const double begin = monotonic_seconds();
  while (static_cast<int>(out.seconds.size()) < kLeastProducts ||
         monotonic_seconds() - begin < seconds) {
    const double start = monotonic_seconds();
    multiply(c);
    out.seconds.push_back(monotonic_seconds() - start);
    out.changed += std::memcmp(c.data, first.data, static_cast<size_t>(first.bytes())) == 0 ? 0 : 1;
  }
  return out;
}

}  // namespace tutti::node
