// Encoding into formats below 16 bits, element by element, and the layout of the output: shared by
// the quantization kernels. Only for .cu files.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "tutti/engine/cuda/philox.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

struct Draw {
  uint64_t key;
  int64_t first_row;
  const int32_t* rows;  // optional

  // The word of element (row, column) of x.
  __device__ uint32_t of(int64_t row, int64_t column) const {
    const int64_t number = first_row + (rows == nullptr ? row : int64_t{rows[row]});
    return word_of(key, number, column);
  }
};

struct Target {
  uint8_t* data;
  NarrowLayout layout;
  int64_t rows, columns;

  __device__ NarrowHeader& header() const { return *reinterpret_cast<NarrowHeader*>(data); }
  __device__ uint8_t* codes(int64_t row) const {
    return data + layout.codes_offset + row * layout.row_bytes;
  }
  __device__ uint8_t* scales(int64_t row) const {
    return data + layout.scales_offset + row * layout.blocks;
  }
};

// Address of the amax of x, and a second address to store it at besides the headers; `to` may be
// null.
struct KnownMagnitude {
  const float* from;
  float* to;
};

inline Draw draw_of(const QuantizeArgs& args) {
  return {args.key, args.first_row, data_of<const int32_t>(args.rows)};
}
inline Target target_of(const NarrowMatrix& out) {
  return {static_cast<uint8_t*>(out.data), out.layout(), out.rows, out.columns};
}

__device__ inline void finish_header(const Target& out, NarrowKind kind, float amax,
                                     const KnownMagnitude& magnitude) {
  out.header() = {1.0F / tensor_scale(kind, amax), amax};
  if (magnitude.to != nullptr) *magnitude.to = amax;
}

// Encodes the scaled value x. `finite`: no element can overflow, so the hardware conversion, which
// also rounds to nearest even, is used.
template <NarrowKind kind, bool stochastic>
__device__ inline uint8_t code_of(float x, bool finite, uint32_t word) {
  constexpr NarrowFloat kFormat = kind == NarrowKind::e5m2    ? kE5m2
                                  : kind == NarrowKind::nvfp4 ? kE2m1
                                                              : kE4m3;
  if constexpr (stochastic) return encode_stochastic<kFormat>(x, word);
  constexpr bool kOwnScale = kind == NarrowKind::e4m3 || kind == NarrowKind::e5m2;
  if constexpr (kOwnScale) {
    if (finite) {
      return __nv_cvt_float_to_fp8(x, __NV_SATFINITE,
                                   kind == NarrowKind::e4m3 ? __NV_E4M3 : __NV_E5M2);
    }
    return encode<kFormat>(x, Overflow::special);
  } else {
    return encode<kFormat>(x, Overflow::saturate);
  }
}

// Writes args.out and args.transposed in one pass over args.x, whose amax is known; for kinds with
// a per-tensor scale (quantize_both.cu).
void quantize_both(CudaStream& stream, const char* op, const QuantizeArgs& args,
                   const KnownMagnitude& magnitude);

}  // namespace tutti::engine
