// Products of 16 x 16 tiles by a warp (nvcuda::wmma), on the host (on_host/grid.h): lane 0 holds
// the whole tile and computes all of it once all lanes have arrived.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major };

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16 && k == 16);
  float x[16][16];  // row, column
};

inline bool is_first_of_warp() {
  __syncwarp();
  return tutti::engine::on_host::lane() == 0;
}

template <typename Fragment>
void fill_fragment(Fragment& to, float value) {
  if (!is_first_of_warp()) return;
  for (auto& row : to.x) {
    for (float& x : row) x = value;
  }
}

template <typename Use, int m, int n, int k, typename Layout>
void load_matrix_sync(fragment<Use, m, n, k, __nv_bfloat16, Layout>& to, const __nv_bfloat16* from,
                      unsigned stride) {
  if (is_first_of_warp()) {
    constexpr bool kByColumns = std::is_same_v<Layout, col_major>;
    for (unsigned r = 0; r < 16; ++r) {
      for (unsigned c = 0; c < 16; ++c) {
        to.x[r][c] = __bfloat162float(kByColumns ? from[c * stride + r] : from[r * stride + c]);
      }
    }
  }
  __syncwarp();
}

template <typename Sum, typename A, typename B>
void mma_sync(Sum& to, const A& a, const B& b, const Sum& c) {
  if (!is_first_of_warp()) return;
  for (int i = 0; i < 16; ++i) {
    float row[16];
    for (int j = 0; j < 16; ++j) row[j] = c.x[i][j];
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 16; ++j) row[j] += a.x[i][k] * b.x[k][j];
    }
    for (int j = 0; j < 16; ++j) to.x[i][j] = row[j];
  }
}

template <typename Sum>
void store_matrix_sync(float* to, const Sum& from, unsigned stride, layout_t /*layout*/) {
  if (is_first_of_warp()) {
    for (unsigned r = 0; r < 16; ++r) {
      for (unsigned c = 0; c < 16; ++c) to[r * stride + c] = from.x[r][c];
    }
  }
  __syncwarp();
}

}  // namespace nvcuda::wmma
