// Plain C++ loops that the compiler vectorises for each target.
#include "tutti/engine/cpu/amax.h"

#include <algorithm>
#include <bit>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/amax.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

float amax_of_f32(const float* x, int64_t count) { return amax_of(x, count); }

float amax_of_bf16(const bf16* x, int64_t count) {
  uint16_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max<uint16_t>(most, x[i].bits & 0x7fffU);
  }
  return to_f32(bf16{most});
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(amax_of_f32);
HWY_EXPORT(amax_of_bf16);

float largest_magnitude(CpuStream& stream, const Matrix& x) {
  auto* parts = static_cast<float*>(stream.scratch(stream.threads() * 64));
  std::fill_n(parts, stream.threads() * 16, 0.0F);
  parallel_ranges(x.rows, 1, [&](int64_t begin, int64_t end, int thread) {
    uint32_t most = 0;
    for (int64_t r = begin; r < end; ++r) {
      const float amax = x.dtype == DType::bf16
                             ? HWY_DYNAMIC_DISPATCH(amax_of_bf16)(x.row<bf16>(r), x.cols)
                             : HWY_DYNAMIC_DISPATCH(amax_of_f32)(x.row<float>(r), x.cols);
      most = std::max(most, std::bit_cast<uint32_t>(amax));
    }
    parts[thread * 16] = std::bit_cast<float>(most);
  });
  return HWY_DYNAMIC_DISPATCH(amax_of_f32)(parts, stream.threads() * 16);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
