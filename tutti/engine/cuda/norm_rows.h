// The split of a norm's row across the threads of a block: in pieces, which threads keep in
// registers between the passes. Only for .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tutti::engine {

constexpr int kNormPiece = 4;  // elements: 16 bytes of f32
constexpr int kMostNormThreads = 512;

// Column of this thread's piece i.
__device__ inline int64_t norm_column(int i) {
  return (static_cast<int64_t>(i) * blockDim.x + threadIdx.x) * kNormPiece;
}

// Calls body(pieces per thread as a constant, threads) with 1, 2, 4 or 8 pieces, or 0 if the row is
// too long. Otherwise pieces * threads * kNormPiece >= H.
template <typename Body>
void with_norm_pieces(int64_t h, const Body& body) {
  const int64_t pieces = (h + kNormPiece - 1) / kNormPiece;
  const auto threads = [&](int64_t each) {
    return static_cast<unsigned>(((pieces + each - 1) / each + 31) / 32 * 32);
  };
  if (pieces <= 256) return body(std::integral_constant<int, 1>(), threads(1));
  if (pieces <= 512) return body(std::integral_constant<int, 2>(), threads(2));
  if (pieces <= 4 * kMostNormThreads) return body(std::integral_constant<int, 4>(), threads(4));
  if (pieces <= 8 * kMostNormThreads) return body(std::integral_constant<int, 8>(), threads(8));
  return body(std::integral_constant<int, 0>(), unsigned{kMostNormThreads});
}

}  // namespace tutti::engine
