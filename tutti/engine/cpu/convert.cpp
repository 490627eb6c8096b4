#include "tutti/engine/cpu/convert.h"

#include <cstring>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/convert.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

template <typename From, typename To>
HWY_INLINE void convert(const From* x, To* out, int64_t count) {
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/)
                       TUTTI_LANES_BODY { store(load(x + j, block), out + j, block); });
}

void widen(const bf16* x, float* out, int64_t count) { convert(x, out, count); }
void narrow(const float* x, bf16* out, int64_t count) { convert(x, out, count); }

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void convert_elements(const bf16* x, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(widen)(x, out, count);
}
void convert_elements(const float* x, bf16* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(narrow)(x, out, count);
}

void cpu_convert(Stream& stream, const ConvertArgs& args) {
  const OpRecord what = describe(args);
  constexpr int64_t kGrain = 4096;
  const double begin = begin_op(stream);
  const auto convert_as = [&](const auto* x, auto* out) {
    parallel_ranges(args.x.count, kGrain, [&](int64_t first, int64_t last, int) {
      convert_elements(x + first, out + first, last - first);
    });
  };
  if (args.x.dtype == args.out.dtype) {
    const int64_t size = dtype_bytes(args.x.dtype);
    parallel_ranges(args.x.count, kGrain, [&](int64_t first, int64_t last, int) {
      std::memcpy(static_cast<char*>(args.out.data) + first * size,
                  static_cast<const char*>(args.x.data) + first * size,
                  static_cast<size_t>((last - first) * size));
    });
  } else if (args.x.dtype == DType::bf16) {
    convert_as(args.x.as<bf16>(), args.out.as<float>());
  } else {
    convert_as(args.x.as<float>(), args.out.as<bf16>());
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
