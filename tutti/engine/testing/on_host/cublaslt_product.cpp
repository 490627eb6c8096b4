#include "tutti/engine/testing/on_host/cublaslt_product.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/narrow_float.h"

namespace tutti::engine::on_host {
namespace {

using Operand = HostProduct::Operand;

// A tile of D is accumulated in registers, also if the compiler does not vectorise by itself.
using Lanes [[gnu::vector_size(16)]] = float;
constexpr int64_t kLanes = 4;
constexpr int64_t kTileRows = 8;
constexpr int64_t kTileCols = 4;
struct Tile {
  Lanes sum[kTileCols][kTileRows / kLanes] = {};
};

float load(cudaDataType_t type, const void* data, int64_t index) {
  switch (type) {
    case CUDA_R_32F: return static_cast<const float*>(data)[index];
    case CUDA_R_16BF: return to_f32(static_cast<const bf16*>(data)[index]);
    case CUDA_R_8F_E4M3: return decode<kE4m3>(static_cast<const uint8_t*>(data)[index]);
    case CUDA_R_8F_E5M2: return decode<kE5m2>(static_cast<const uint8_t*>(data)[index]);
  }
  return 0;
}

// To nearest, ties away from zero.
float to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return x;
  return std::bit_cast<float>((bits + 0x1000U) & ~0x1fffU);
}

// Packs groups of `group` rows of op(A), or columns of op(B), as [k][group], one after the other,
// with zeros after the last. The other dimension of op is k; strides are in elements.
std::vector<float> pack(const Operand& x, int64_t lines, int64_t k, int64_t line_stride,
                        int64_t k_stride, int64_t group, bool tf32) {
  const int64_t groups = (lines + group - 1) / group;
  std::vector<float> out(static_cast<size_t>(groups * k * group));
  for (int64_t line = 0; line < lines; ++line) {
    float* to = out.data() + line / group * k * group + line % group;
    for (int64_t p = 0; p < k; ++p) {
      const float value = load(x.type, x.data, line * line_stride + p * k_stride);
      to[p * group] = tf32 ? to_tf32(value) : value;
    }
  }
  return out;
}

// Sums the products at first, first + step, ... Without sanitizers, which is eight times as fast:
// it only reads the output of pack().
__attribute__((no_sanitize("address", "undefined"))) Tile sum_products(const float* a,
                                                                       const float* b,
                                                                       int64_t first, int64_t count,
                                                                       int64_t step) {
  Tile tile;
  for (int64_t i = 0, p = first; i < count; ++i, p += step) {
    const float* a_p = a + p * kTileRows;
    const float* b_p = b + p * kTileCols;
    Lanes upper, lower;
    std::memcpy(&upper, a_p, sizeof upper);
    std::memcpy(&lower, a_p + kLanes, sizeof lower);
    for (int64_t col = 0; col < kTileCols; ++col) {
      tile.sum[col][0] += upper * b_p[col];
      tile.sum[col][1] += lower * b_p[col];
    }
  }
  return tile;
}

Tile sum_products(const float* a, const float* b, int64_t k, SumOrder order) {
  if (order == SumOrder::forwards) return sum_products(a, b, 0, k, 1);
  if (order == SumOrder::backwards) return sum_products(a, b, k - 1, k, -1);
  Tile tile = sum_products(a, b, 0, k / 2, 1);
  const Tile rest = sum_products(a, b, k / 2, k - k / 2, 1);
  for (int64_t col = 0; col < kTileCols; ++col) {
    for (int64_t row = 0; row < kTileRows / kLanes; ++row) tile.sum[col][row] += rest.sum[col][row];
  }
  return tile;
}

// An element of D with all its terms, rounded once.
void finish(const HostProduct& x, float factor, float sum, int64_t row, int64_t col) {
  float value = factor * (x.coarse ? to_tf32(sum) : sum);
  if (x.beta != 0) value += x.beta * load(x.c.type, x.c.data, row + col * x.c.ld);
  if (x.bias != nullptr) value += load(x.bias_type, x.bias, row);
  const int64_t at = row + col * x.d_ld;
  if (x.d_type == CUDA_R_16BF) {
    static_cast<bf16*>(x.d)[at] = to_bf16(value);
  } else {
    static_cast<float*>(x.d)[at] = value;
  }
}

}  // namespace

void multiply(const HostProduct& x) {
  const std::vector<float> a = pack(x.a, x.m, x.k, x.a.transposed ? x.a.ld : 1,
                                    x.a.transposed ? 1 : x.a.ld, kTileRows, x.tf32);
  const std::vector<float> b = pack(x.b, x.n, x.k, x.b.transposed ? 1 : x.b.ld,
                                    x.b.transposed ? x.b.ld : 1, kTileCols, x.tf32);
  const float factor =
      x.alpha * (x.a.scale != nullptr ? *x.a.scale : 1) * (x.b.scale != nullptr ? *x.b.scale : 1);
  for (int64_t row = 0; row < x.m; row += kTileRows) {
    for (int64_t col = 0; col < x.n; col += kTileCols) {
      const Tile tile = sum_products(a.data() + row * x.k, b.data() + col * x.k, x.k, x.order);
      for (int64_t j = 0; j < std::min(kTileCols, x.n - col); ++j) {
        for (int64_t i = 0; i < std::min(kTileRows, x.m - row); ++i) {
          finish(x, factor, tile.sum[j][i / kLanes][i % kLanes], row + i, col + j);
        }
      }
    }
  }
}

}  // namespace tutti::engine::on_host
