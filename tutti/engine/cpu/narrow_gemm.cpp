// Emulation of products below 16 bits (narrow_ops.h). A code times its block's scale has at most
// six significant bits and is exact in bf16: operands are decoded to bf16 and multiplied with f32
// accumulation; the per-tensor scales multiply the sums.
#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/gemm.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

template <NarrowFloat F>
constexpr std::array<float, 256> decoded() {
  std::array<float, 256> out = {};
  for (size_t i = 0; i < out.size(); ++i) out[i] = decode<F>(static_cast<uint8_t>(i));
  return out;
}
constexpr std::array<float, 256> kE4m3Values = decoded<kE4m3>();
constexpr std::array<float, 256> kE5m2Values = decoded<kE5m2>();
constexpr std::array<float, 256> kE2m1Values = decoded<kE2m1>();  // only the first 16 are used

// Exact: the lower half of the bits is zero.
bf16 exact_bf16(float x) { return {static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; }

void decode_row(const NarrowMatrix& x, const NarrowLayout& layout, int64_t row, bf16* out) {
  const auto* data = static_cast<const uint8_t*>(x.data);
  const uint8_t* codes = data + layout.codes_offset + row * layout.row_bytes;
  const uint8_t* scales = data + layout.scales_offset + row * layout.blocks;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  switch (x.kind) {
    case NarrowKind::e4m3:
    case NarrowKind::e5m2: {
      const auto& values = x.kind == NarrowKind::e4m3 ? kE4m3Values : kE5m2Values;
      for (int64_t i = 0; i < x.columns; ++i) out[i] = exact_bf16(values[codes[i]]);
      return;
    }
    case NarrowKind::mxfp8:
      for (int64_t i = 0; i < x.columns; ++i) {
        out[i] = to_bf16(kE4m3Values[codes[i]] * decode_e8m0(scales[i / 32]));
      }
      return;
    case NarrowKind::nvfp4:
      for (int64_t i = 0; i < x.columns; ++i) {
        const int64_t code = codes[i / 2] >> (i % 2 * 4) & 15;
        out[i] = exact_bf16(kE2m1Values[at(code)] * kE4m3Values[scales[i / 16]]);
      }
      return;
  }
}

Matrix decode_matrix(const NarrowMatrix& x, void* to) {
  const Matrix out = matrix(to, DType::bf16, x.rows, x.columns);
  const NarrowLayout layout = x.layout();
  parallel_ranges(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) decode_row(x, layout, r, out.row<bf16>(r));
  });
  return out;
}

float inverse_scale(const NarrowMatrix& x) {
  NarrowHeader header;
  std::memcpy(&header, x.data, sizeof header);
  return header.inverse_scale;
}

// C = sums * scale + bias + beta C, rounded once. C may be the sums.
void finish(const NarrowGemmArgs& args, const Matrix& sums, float scale) {
  parallel_ranges(args.c.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* x = sums.row<float>(r);
      for (int64_t j = 0; j < sums.cols; ++j) x[j] *= scale;
      if (args.bias && args.bias.dtype == DType::bf16) {
        for (int64_t j = 0; j < sums.cols; ++j) x[j] += to_f32(args.bias.as<bf16>()[j]);
      } else if (args.bias) {
        for (int64_t j = 0; j < sums.cols; ++j) x[j] += args.bias.as<float>()[j];
      }
      if (args.c.dtype == DType::bf16) {
        bf16* c = args.c.row<bf16>(r);
        if (args.beta != 0) {
          for (int64_t j = 0; j < sums.cols; ++j) x[j] += to_f32(c[j]);
        }
        convert_elements(x, c, sums.cols);
      } else if (args.c.data != sums.data) {
        float* c = args.c.row<float>(r);
        for (int64_t j = 0; j < sums.cols; ++j) c[j] = args.beta != 0 ? c[j] + x[j] : x[j];
      }
    }
  });
}

}  // namespace

void cpu_narrow_gemm(Stream& stream, const NarrowGemmArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const int64_t m = args.a.rows;
  const int64_t n = args.b.rows;
  const int64_t k = args.a.columns;
  CpuStream& cpu = cpu_stream(stream);
  const auto aligned = [](int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  const int64_t a_bytes = aligned(m * k * 2);
  const int64_t b_bytes = aligned(n * k * 2);
  const bool in_place = args.c.dtype == DType::f32 && args.beta == 0;
  auto* room = static_cast<char*>(cpu.operands(a_bytes + b_bytes + (in_place ? 0 : m * n * 4)));
  const Matrix sums =
      in_place ? args.c : matrix(room + a_bytes + b_bytes, DType::f32, args.c.rows, args.c.cols);
  multiply(cpu, {.a = decode_matrix(args.a, room),
                 .b = decode_matrix(args.b, room + a_bytes),
                 .c = sums,
                 .transpose_b = true});
  finish(args, sums, inverse_scale(args.a) * inverse_scale(args.b));
  record(stream, what, begin);
}

}  // namespace tutti::engine
