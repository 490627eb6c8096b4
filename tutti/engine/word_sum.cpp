#include "tutti/engine/word_sum.h"

#include <atomic>
#include <bit>

#include "tutti/base/check.h"
#include "tutti/base/narrow_float.h"
#include "tutti/engine/cpu/parallel.h"

namespace tutti::engine {
namespace {

uint32_t word_of(float x) { return std::bit_cast<uint32_t>(x); }
uint32_t word_of(bf16 x) { return x.bits; }

template <typename T>
uint32_t sum_of(const T* values, int64_t count) {
  constexpr int64_t kGrain = 1 << 16;
  std::atomic<uint32_t> total{0};
  parallel_ranges(count, kGrain, [&](int64_t first, int64_t last, int) {
    uint32_t sum = 0;
    for (int64_t i = first; i < last; ++i) sum += word_of(values[i]);
    total += sum;
  });
  return total;
}

}  // namespace

uint32_t word_sum(const Vector& x) {
  if (x.count == 0) return 0;
  TUTTI_CHECK(x.dtype == DType::f32 || x.dtype == DType::bf16, "word_sum: unsupported type {}",
              dtype_name(x.dtype));
  return x.dtype == DType::f32 ? sum_of(x.as<float>(), x.count) : sum_of(x.as<bf16>(), x.count);
}

}  // namespace tutti::engine
