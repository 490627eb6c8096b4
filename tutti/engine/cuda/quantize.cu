// Quantization (narrow_ops.h states the contract, base/narrow_format.h the formats): first the amax
// of the tensor, if the format needs it and it is not known, then the codes. Every element is read
// twice (once with a known amax) and its code written once: with bf16 and 8-bit codes 5 (3) bytes
// per element. A thread has the elements of one scale, or 16. The transpose goes through tiles in
// shared memory. quantize_both.cu writes a matrix and its transpose in one pass.
#include "tutti/engine/cuda/amax.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/narrow_codes.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // rows and columns of a transposed tile

template <NarrowKind kind>
inline constexpr int kGroup = kind == NarrowKind::mxfp8 ? 32 : 16;  // elements per thread
template <NarrowKind kind>
inline constexpr int kGroupBytes = kGroup<kind>* narrow_format(kind).element_bits / 8;

// The header of an empty matrix, and of formats without a per-tensor scale.
__global__ void begin_kernel(Target out) { out.header() = {1, 0}; }

template <typename T, bool wide>
__global__ void amax_kernel(Rows<const T> x, int64_t rows, int64_t cols, Target out) {
  constexpr int V = kPieceOf<T>;
  unsigned most = 0;
  for_pieces<V>(rows, cols, [&](int64_t r, int64_t j, int64_t count) {
    float v[V];
    load_piece<V, wide>(x.row(r) + j, count, 0, v);
    add_magnitudes(v, count, most);
  });
  __shared__ unsigned of_block;
  const bool first = threadIdx.x == 0 && threadIdx.y == 0;
  if (first) of_block = 0;
  __syncthreads();
  if (most != 0) atomicMax(&of_block, most);
  __syncthreads();
  if (first && of_block != 0) {
    atomicMax(reinterpret_cast<unsigned*>(&out.header().amax), of_block);
  }
}

// The group of columns [first, first + kGroup) of row `row` of out; padding if it is beyond the
// last column.
template <NarrowKind kind, bool stochastic>
__device__ void encode_group(const Target& out, int64_t row, int64_t first, float amax,
                             const float (&v)[kGroup<kind>],
                             const uint32_t (&words)[kGroup<kind>]) {
  const int64_t count = out.columns - first;
  float factor = tensor_scale(kind, amax);
  if constexpr (narrow_format(kind).block_elements > 0) {
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < kGroup<kind>; ++i) {
      if (i < count) most = max(most, magnitude_bits(v[i]));
    }
    const float block_amax = __uint_as_float(most);
    uint8_t scale;
    if constexpr (kind == NarrowKind::mxfp8) {
      scale = mxfp8_scale(block_amax);
      factor = mxfp8_factor(scale);
    } else {
      scale = nvfp4_scale(block_amax, factor);
      factor = nvfp4_factor(scale, factor);
    }
    if (count > 0) out.scales(row)[first / kGroup<kind>] = scale;
  }
  const bool finite = is_finite_magnitude(amax);
  uint32_t packed[kGroupBytes<kind> / 4] = {};
  constexpr int kBits = narrow_format(kind).element_bits;
#pragma unroll
  for (int i = 0; i < kGroup<kind>; ++i) {
    const uint32_t code =
        i < count ? code_of<kind, stochastic>(v[i] * factor, finite, words[i]) : 0;
    packed[i * kBits / 32] |= code << (i * kBits % 32);
  }
  uint8_t* to = out.codes(row) + first * kBits / 8;
  const int64_t room = out.layout.row_bytes - first * kBits / 8;
  if constexpr (kGroupBytes<kind> == 8) {
    if (room >= 8) *reinterpret_cast<uint2*>(to) = make_uint2(packed[0], packed[1]);
  } else {
#pragma unroll
    for (int part = 0; part < kGroupBytes<kind> / 16; ++part) {
      if (room < 16 * (part + 1)) continue;
      *reinterpret_cast<uint4*>(to + 16 * part) = make_uint4(
          packed[4 * part], packed[4 * part + 1], packed[4 * part + 2], packed[4 * part + 3]);
    }
  }
}

// Number of groups that cover the codes of a row, including padding.
template <NarrowKind kind>
__host__ __device__ int64_t groups_of(const NarrowLayout& layout) {
  return (layout.row_bytes + kGroupBytes<kind> - 1) / kGroupBytes<kind>;
}

template <NarrowKind kind, typename T, bool wide, bool stochastic>
__global__ void __launch_bounds__(kThreads)
    straight_kernel(Rows<const T> x, Target out, Draw draw, KnownMagnitude magnitude) {
  constexpr int G = kGroup<kind>;
  constexpr int V = kPieceOf<T>;
  const float amax = *magnitude.from;
  const int64_t groups = groups_of<kind>(out.layout);
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at == 0) finish_header(out, kind, amax, magnitude);
  if (at >= out.rows * groups) return;
  const int64_t row = at / groups;
  const int64_t first = at % groups * G;
  float v[G];
#pragma unroll
  for (int piece = 0; piece < G / V; ++piece) {
    float part[V];
    load_piece<V, wide>(x.row(row) + first + piece * V, out.columns - first - piece * V, 0, part);
#pragma unroll
    for (int i = 0; i < V; ++i) v[piece * V + i] = part[i];
  }
  uint32_t words[G] = {};
  if constexpr (stochastic) {
#pragma unroll
    for (int i = 0; i < G; ++i) {
      if (first + i < out.columns) words[i] = draw.of(row, first + i);
    }
  }
  encode_group<kind, stochastic>(out, row, first, amax, v, words);
}

// Rows of out are columns of x: a block transposes kTile x kTile elements.
template <NarrowKind kind, typename T, bool stochastic>
__global__ void __launch_bounds__(kThreads)
    turned_kernel(Rows<const T> x, Target out, Draw draw, KnownMagnitude magnitude) {
  constexpr int G = kGroup<kind>;
  __shared__ float tile[kTile][kTile + 1];
  const float amax = *magnitude.from;
  const int64_t first_x_row = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_x_col = static_cast<int64_t>(blockIdx.y) * kTile;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    finish_header(out, kind, amax, magnitude);
  }
  for (int at = threadIdx.x; at < kTile * kTile; at += kThreads) {
    const int r = at / kTile;
    const int c = at % kTile;
    const bool there = first_x_row + r < out.columns && first_x_col + c < out.rows;
    tile[r][c] = there ? widen(x.row(first_x_row + r)[first_x_col + c]) : 0;
  }
  __syncthreads();
  constexpr int kGroups = kTile / G;  // of a row of out
  for (int at = threadIdx.x; at < kTile * kGroups; at += kThreads) {
    const int c = at % kTile;
    const int g = at / kTile * G;
    const int64_t row = first_x_col + c;
    const int64_t first = first_x_row + g;
    if (row >= out.rows) continue;
    float v[G];
    uint32_t words[G] = {};
#pragma unroll
    for (int i = 0; i < G; ++i) {
      v[i] = tile[g + i][c];
      if (stochastic && first + i < out.columns) words[i] = draw.of(first + i, row);
    }
    encode_group<kind, stochastic>(out, row, first, amax, v, words);
  }
}

template <NarrowKind kind, typename T, bool stochastic>
void encode_matrix(CudaStream& cuda, const char* op, const QuantizeArgs& args, const Target& out,
                   const KnownMagnitude& magnitude) {
  const Draw draw = draw_of(args);
  if (args.transpose) {
    // Tiles also cover the padding of rows.
    const int64_t covered = groups_of<kind>(out.layout) * kGroup<kind>;
    launch(cuda, op, turned_kernel<kind, T, stochastic>,
           dim3(blocks_for(covered, kTile), blocks_for(out.rows, kTile)), dim3(kThreads), 0,
           rows_of<const T>(args.x), out, draw, magnitude);
    return;
  }
  with_flag(wide_rows(kPieceOf<T>, args.x), [&](auto wide) {
    launch(cuda, op, straight_kernel<kind, T, wide.value, stochastic>,
           dim3(blocks_for(out.rows * groups_of<kind>(out.layout), kThreads)), dim3(kThreads), 0,
           rows_of<const T>(args.x), out, draw, magnitude);
  });
}

// Calls body with the kind as a constant.
template <typename Body>
void with_kind(NarrowKind kind, const Body& body) {
  switch (kind) {
    case NarrowKind::e4m3: return body(std::integral_constant<NarrowKind, NarrowKind::e4m3>());
    case NarrowKind::e5m2: return body(std::integral_constant<NarrowKind, NarrowKind::e5m2>());
    case NarrowKind::mxfp8: return body(std::integral_constant<NarrowKind, NarrowKind::mxfp8>());
    case NarrowKind::nvfp4: return body(std::integral_constant<NarrowKind, NarrowKind::nvfp4>());
  }
}

bool is_empty(const Matrix& x) { return x.rows == 0 || x.cols == 0; }

// The amax of x, if the format has a per-tensor scale: as given, or computed and stored in the
// header of args.out.
KnownMagnitude begin_matrix(CudaStream& cuda, const char* op, const QuantizeArgs& args) {
  const Matrix& x = args.x;
  const Target out = target_of(args.out);
  const bool scales = narrow_format(args.out.kind).tensor_scale;
  const bool empty = is_empty(x);  // the encoding kernels then write nothing
  auto* const kept = scales ? data_of<float>(args.amax.value) : nullptr;
  if (scales && args.amax.known && !empty) return {kept, nullptr};
  launch(cuda, op, begin_kernel, dim3(1), dim3(1), 0, out);
  if (kept != nullptr && empty) cuda.zero(kept, sizeof(float));
  const KnownMagnitude found = {&static_cast<NarrowHeader*>(args.out.data)->amax, kept};
  if (!scales) return found;
  with_dtype(x.dtype, [&](auto type) {
    using T = decltype(type);
    RowCover cover = cover_rows(x.rows, x.cols, kPieceOf<T>);
    constexpr unsigned kRowsAtOnce = 512;  // several rows per thread, and few atomics at the end
    cover.grid.y = std::min(cover.grid.y, kRowsAtOnce);
    with_flag(wide_rows(kPieceOf<T>, x), [&](auto wide) {
      launch(cuda, op, amax_kernel<T, wide.value>, cover.grid, cover.block, 0, rows_of<const T>(x),
             x.rows, x.cols, out);
    });
  });
  return found;
}

void quantize_matrix(CudaStream& cuda, const char* op, const QuantizeArgs& args) {
  const Target out = target_of(args.out);
  const KnownMagnitude magnitude = begin_matrix(cuda, op, args);
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    with_kind(args.out.kind, [&](auto kind) {
      with_flag(args.stochastic, [&](auto stochastic) {
        encode_matrix<kind.value, T, stochastic.value>(cuda, op, args, out, magnitude);
      });
    });
  });
}

}  // namespace

void cuda_quantize(Stream& stream, const QuantizeArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  if (args.transposed.data == nullptr) {
    quantize_matrix(cuda, what.op, args);
  } else if (per_tensor(args.out.kind)) {
    const KnownMagnitude magnitude = begin_matrix(cuda, what.op, args);
    if (is_empty(args.x)) {
      launch(cuda, what.op, begin_kernel, dim3(1), dim3(1), 0, target_of(args.transposed));
    }
    quantize_both(cuda, what.op, args, magnitude);
  } else {
    QuantizeArgs transposed = args;
    transposed.transpose = true;
    transposed.out = args.transposed;
    quantize_matrix(cuda, what.op, args);
    quantize_matrix(cuda, what.op, transposed);
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
