// Quantization on the CPU (narrow_ops.h states the contract), in plain C++ loops that the compiler
// vectorises for each target.
#include <algorithm>
#include <cstring>

#include "tutti/base/rng.h"
#include "tutti/engine/cpu/amax.h"
#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/quantize.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// codes[i] = x[i] * factor; `words` are random for stochastic rounding, else null.
template <NarrowFloat F>
void encode_elements(const float* x, float factor, Overflow overflow, const uint32_t* words,
                     uint8_t* codes, int64_t count) {
  if (words == nullptr) {
    for (int64_t i = 0; i < count; ++i) codes[i] = encode<F>(x[i] * factor, overflow);
  } else {
    for (int64_t i = 0; i < count; ++i) codes[i] = encode_stochastic<F>(x[i] * factor, words[i]);
  }
}

// One row of `out`: codes and, for block formats, scales. `bytes` holds at least one block's codes.
void quantize_row(NarrowKind kind, const float* x, int64_t count, float scale,
                  const uint32_t* words, uint8_t* codes, uint8_t* scales) {
  switch (kind) {
    case NarrowKind::e4m3:
      encode_elements<kE4m3>(x, scale, Overflow::special, words, codes, count);
      return;
    case NarrowKind::e5m2:
      encode_elements<kE5m2>(x, scale, Overflow::special, words, codes, count);
      return;
    case NarrowKind::mxfp8:
      for (int64_t first = 0; first < count; first += 32) {
        const int64_t size = std::min<int64_t>(32, count - first);
        const uint8_t shared = mxfp8_scale(amax_of(x + first, size));
        scales[first / 32] = shared;
        encode_elements<kE4m3>(x + first, mxfp8_factor(shared), Overflow::saturate,
                               words == nullptr ? nullptr : words + first, codes + first, size);
      }
      return;
    case NarrowKind::nvfp4:
      for (int64_t first = 0; first < count; first += 16) {
        const int64_t size = std::min<int64_t>(16, count - first);
        const uint8_t shared = nvfp4_scale(amax_of(x + first, size), scale);
        scales[first / 16] = shared;
        uint8_t block[16] = {};
        encode_elements<kE2m1>(x + first, nvfp4_factor(shared, scale), Overflow::saturate,
                               words == nullptr ? nullptr : words + first, block, size);
        uint8_t* to = codes + first / 2;
        for (int64_t i = 0; i < (size + 1) / 2; ++i) {
          to[i] = static_cast<uint8_t>(block[2 * i] | block[2 * i + 1] << 4);
        }
      }
      return;
  }
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(quantize_row);

// Rows of `out` that a thread processes at once; for a transposed matrix, columns of x.
constexpr int64_t kRows = 16;

// Rows [first, first + count) of x or of its transpose, as f32, each `width` long.
void gather(const Matrix& x, bool transpose, int64_t first, int64_t count, float* out) {
  if (!transpose) {
    for (int64_t i = 0; i < count; ++i) {
      if (x.dtype == DType::bf16) {
        convert_elements(x.row<bf16>(first + i), out + i * x.cols, x.cols);
      } else {
        std::copy_n(x.row<float>(first + i), x.cols, out + i * x.cols);
      }
    }
    return;
  }
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t i = 0; i < count; ++i) {
      out[i * x.rows + r] =
          x.dtype == DType::bf16 ? to_f32(x.row<bf16>(r)[first + i]) : x.row<float>(r)[first + i];
    }
  }
}

// The random words of row `index` of `out`.
void draw(const QuantizeArgs& args, int64_t index, int64_t width, uint32_t* words) {
  const int32_t* numbers = args.rows ? args.rows.as<int32_t>() : nullptr;
  for (int64_t i = 0; i < width; ++i) {
    const int64_t row = args.transpose ? i : index;
    const int64_t column = args.transpose ? index : i;
    const int64_t number = args.first_row + (numbers == nullptr ? row : numbers[row]);
    words[i] = philox(args.key, static_cast<uint64_t>(number),
                      static_cast<uint64_t>(column / 4))[static_cast<size_t>(column % 4)];
  }
}

// The amax of x: as given, or computed and stored in args.amax.
float magnitude_of(CpuStream& stream, const QuantizeArgs& args) {
  const Vector& value = args.amax.value;
  const bool empty = args.x.rows == 0 || args.x.cols == 0;
  if (args.amax.known && !empty) return *value.as<float>();
  const float amax = largest_magnitude(stream, args.x);
  if (value) *value.as<float>() = amax;
  return amax;
}

void quantize_matrix(Stream& stream, const QuantizeArgs& args) {
  const NarrowMatrix& out = args.out;
  const int64_t width = out.columns;
  const NarrowLayout layout = out.layout();
  auto* data = static_cast<uint8_t*>(out.data);
  CpuStream& cpu = cpu_stream(stream);
  NarrowHeader header = {1, 0};
  float scale = 1;
  if (narrow_format(out.kind).tensor_scale) {
    header.amax = magnitude_of(cpu, args);
    scale = tensor_scale(out.kind, header.amax);
    header.inverse_scale = 1 / scale;
  }
  std::memcpy(data, &header, sizeof header);

  const int64_t per_thread = width * (kRows + (args.stochastic ? 1 : 0));
  auto* scratch = static_cast<float*>(
      cpu.scratch(stream.threads() * per_thread * static_cast<int64_t>(sizeof(float))));
  const int64_t used = (width * narrow_format(out.kind).element_bits + 7) / 8;
  parallel_ranges(out.rows, kRows, [&](int64_t first, int64_t last, int thread) {
    float* values = scratch + thread * per_thread;
    uint32_t* words = nullptr;
    if (args.stochastic) words = reinterpret_cast<uint32_t*>(values + width * kRows);
    for (int64_t tile = first; tile < last; tile += kRows) {
      const int64_t count = std::min(kRows, last - tile);
      gather(args.x, args.transpose, tile, count, values);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = tile + i;
        uint8_t* codes = data + layout.codes_offset + row * layout.row_bytes;
        if (args.stochastic) draw(args, row, width, words);
        HWY_DYNAMIC_DISPATCH(quantize_row)
        (out.kind, values + i * width, width, scale, words, codes,
         data + layout.scales_offset + row * layout.blocks);
        std::fill(codes + used, codes + layout.row_bytes, uint8_t{0});
      }
    }
  });
}

}  // namespace

void cpu_quantize(Stream& stream, const QuantizeArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  quantize_matrix(stream, args);
  if (args.transposed.data != nullptr) {
    QuantizeArgs transposed = args;
    transposed.transpose = true;
    transposed.out = args.transposed;
    quantize_matrix(stream, transposed);
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
