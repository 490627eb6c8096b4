// Quantization to a matrix and its transpose at once (narrow_ops.h states the contract), for
// formats with one scale per tensor, which is already known. With bf16 2 bytes read and 1 + 1
// written per element.
//
// A block has kTile x kTile elements. A thread has kPatchRows rows of kPatchColumns: it stores
// their codes in row order, and passes them through shared memory, four rows of a column per word,
// to the thread that stores 16 rows of that column. The lanes of a warp form 8 rows of 4, so that
// neither reads nor writes of shared memory have bank conflicts.
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/narrow_codes.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 128;
constexpr int kPatchRows = 4;
constexpr int kPatchColumns = 8;
constexpr int kWarpTile = 32;  // rows and columns of a warp's patches
constexpr int kStored = 16;    // codes per store to a row of the transpose

// Encodes the patch at (row, column), each row in two words; 0 outside of x.
template <NarrowKind kind, typename T, bool wide, bool stochastic>
__device__ void encode_patch(const Rows<const T>& x, const Target& out, const Draw& draw,
                             int64_t row, int64_t column, float amax,
                             uint32_t (&codes)[kPatchRows][2]) {
  float v[kPatchRows][kPatchColumns];
#pragma unroll
  for (int i = 0; i < kPatchRows; ++i) {
    const int64_t count = row + i < out.rows ? out.columns - column : 0;
    load_piece<kPatchColumns, wide>(x.row(row + i) + column, count, 0, v[i]);
  }
  const float factor = tensor_scale(kind, amax);
  const bool finite = is_finite_magnitude(amax);
#pragma unroll
  for (int i = 0; i < kPatchRows; ++i) {
    codes[i][0] = codes[i][1] = 0;
    const int64_t count = row + i < out.rows ? out.columns - column : 0;
#pragma unroll
    for (int e = 0; e < kPatchColumns; ++e) {
      if (e >= count) continue;
      const uint32_t word = stochastic ? draw.of(row + i, column + e) : 0;
      const uint32_t code = code_of<kind, stochastic>(v[i][e] * factor, finite, word);
      codes[i][e / 4] |= code << (e % 4 * 8);
    }
  }
}

template <NarrowKind kind, typename T, bool wide, bool stochastic>
__global__ void __launch_bounds__(kThreads)
    both_kernel(Rows<const T> x, Target out, Target transposed, Draw draw,
                KnownMagnitude magnitude) {
  __shared__ uint32_t columns[kTile][kTile / 4 + 1];
  const float amax = *magnitude.from;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    finish_header(out, kind, amax, magnitude);
    finish_header(transposed, kind, amax, magnitude);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kWarpTiles = kTile / kWarpTile;
  for (int at = static_cast<int>(threadIdx.x) / 32; at < kWarpTiles * kWarpTiles;
       at += kThreads / 32) {
    const int c = at % kWarpTiles * kWarpTile + lane % 4 * kPatchColumns;
    const int r = at / kWarpTiles * kWarpTile + lane / 4 * kPatchRows;
    const int64_t row = first_row + r;
    const int64_t column = first_column + c;
    uint32_t codes[kPatchRows][2];
    encode_patch<kind, T, wide, stochastic>(x, out, draw, row, column, amax, codes);
    if (column < out.layout.row_bytes) {
#pragma unroll
      for (int i = 0; i < kPatchRows; ++i) {
        if (row + i >= out.rows) continue;
        *reinterpret_cast<uint2*>(out.codes(row + i) + column) =
            make_uint2(codes[i][0], codes[i][1]);
      }
    }
#pragma unroll
    for (int e = 0; e < kPatchColumns; ++e) {
      uint32_t of_column = 0;
#pragma unroll
      for (int i = 0; i < kPatchRows; ++i) {
        of_column |= (codes[i][e / 4] >> (e % 4 * 8) & 0xffU) << (i * 8);
      }
      columns[c + e][r / 4] = of_column;
    }
  }
  __syncthreads();
  constexpr int kParts = kTile / kStored;
  for (int at = static_cast<int>(threadIdx.x); at < kTile * kParts; at += kThreads) {
    const int c = at / kParts;
    const int word = at % kParts * (kStored / 4);
    const int64_t row = first_column + c;
    const int64_t first = first_row + word * 4;
    if (row >= transposed.rows || first >= transposed.layout.row_bytes) continue;
    *reinterpret_cast<uint4*>(transposed.codes(row) + first) = make_uint4(
        columns[c][word], columns[c][word + 1], columns[c][word + 2], columns[c][word + 3]);
  }
}

}  // namespace

void quantize_both(CudaStream& stream, const char* op, const QuantizeArgs& args,
                   const KnownMagnitude& magnitude) {
  const Target out = target_of(args.out);
  const Target transposed = target_of(args.transposed);
  // Tiles also cover the padding of rows.
  const auto grid = dim3(blocks_for(args.x.rows == 0 ? 0 : out.layout.row_bytes, kTile),
                         blocks_for(args.x.cols == 0 ? 0 : transposed.layout.row_bytes, kTile));
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    with_flag(wide_rows(kPatchColumns, args.x), [&](auto wide) {
      with_flag(args.stochastic, [&](auto stochastic) {
        with_flag(args.out.kind == NarrowKind::e4m3, [&](auto e4m3) {
          constexpr NarrowKind kKind = e4m3.value ? NarrowKind::e4m3 : NarrowKind::e5m2;
          launch(stream, op, both_kernel<kKind, T, wide.value, stochastic.value>, grid,
                 dim3(kThreads), 0, rows_of<const T>(args.x), out, transposed, draw_of(args),
                 magnitude);
        });
      });
    });
  });
}

}  // namespace tutti::engine
