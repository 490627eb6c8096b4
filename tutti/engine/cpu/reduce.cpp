#include "tutti/engine/cpu/reduce.h"

#include <algorithm>
#include <type_traits>

#include "tutti/base/check.h"
#include "tutti/engine/cpu/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/reduce.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

HWY_INLINE F32 combine(F32 a, F32 b, std::integral_constant<Reduce, Reduce::sum> /*reduce*/) {
  return hn::Add(a, b);
}
HWY_INLINE F32 combine(F32 a, F32 b, std::integral_constant<Reduce, Reduce::max> /*reduce*/) {
  return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);  // keeps a NaN in a
}

// `two`: specialisation for two sources, the usual case on small hosts.
template <typename T, Reduce reduce, bool two>
HWY_INLINE void reduce_lanes(const void* const* sources, int64_t source_count,
                             void* const* destinations, int64_t destination_count, int64_t count) {
  const std::integral_constant<Reduce, reduce> how;
  const auto source = [&](int64_t s) TUTTI_LANES_BODY { return static_cast<const T*>(sources[s]); };
  for_lanes(count, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
    F32 result = load(source(0) + j, block);
    if constexpr (two) {
      result = combine(result, load(source(1) + j, block), how);
    } else {
      for (int64_t s = 1; s < source_count; ++s) {
        result = combine(result, load(source(s) + j, block), how);
      }
    }
    for (int64_t d = 0; d < destination_count; ++d) {
      store(result, static_cast<T*>(destinations[d]) + j, block);
    }
  });
}

template <typename T>
HWY_INLINE void reduce_as(Reduce reduce, const void* const* sources, int64_t source_count,
                          void* const* destinations, int64_t destination_count, int64_t count) {
  if (reduce == Reduce::max) {
    reduce_lanes<T, Reduce::max, false>(sources, source_count, destinations, destination_count,
                                        count);
  } else if (source_count == 2) {
    reduce_lanes<T, Reduce::sum, true>(sources, 2, destinations, destination_count, count);
  } else {
    reduce_lanes<T, Reduce::sum, false>(sources, source_count, destinations, destination_count,
                                        count);
  }
}

void reduce_f32(Reduce reduce, const void* const* sources, int64_t source_count,
                void* const* destinations, int64_t destination_count, int64_t count) {
  reduce_as<float>(reduce, sources, source_count, destinations, destination_count, count);
}
void reduce_bf16(Reduce reduce, const void* const* sources, int64_t source_count,
                 void* const* destinations, int64_t destination_count, int64_t count) {
  reduce_as<bf16>(reduce, sources, source_count, destinations, destination_count, count);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

template <typename T>
void reduce_integers(Reduce reduce, const void* const* sources, int64_t source_count,
                     void* const* destinations, int64_t destination_count, int64_t count) {
  using U = std::make_unsigned_t<T>;  // unsigned sums may wrap around
  const auto source = [&](int64_t s, int64_t i) { return static_cast<const T*>(sources[s])[i]; };
  for (int64_t i = 0; i < count; ++i) {
    T result = source(0, i);
    for (int64_t s = 1; s < source_count; ++s) {
      result = reduce == Reduce::max
                   ? std::max(result, source(s, i))
                   : static_cast<T>(static_cast<U>(result) + static_cast<U>(source(s, i)));
    }
    for (int64_t d = 0; d < destination_count; ++d) static_cast<T*>(destinations[d])[i] = result;
  }
}

}  // namespace

HWY_EXPORT(reduce_f32);
HWY_EXPORT(reduce_bf16);

void reduce_elements(Reduce reduce, DType dtype, std::span<const void* const> sources,
                     std::span<void* const> destinations, int64_t count) {
  TUTTI_CHECK(!sources.empty(), "reduce without sources");
  const auto call = [&](auto function) {
    function(reduce, sources.data(), static_cast<int64_t>(sources.size()), destinations.data(),
             static_cast<int64_t>(destinations.size()), count);
  };
  switch (dtype) {
    case DType::f32: return call(HWY_DYNAMIC_DISPATCH(reduce_f32));
    case DType::bf16: return call(HWY_DYNAMIC_DISPATCH(reduce_bf16));
    case DType::i32: return call(reduce_integers<int32_t>);
    case DType::i64: return call(reduce_integers<int64_t>);
    default: TUTTI_CHECK(false, "reduce: unsupported type {}", dtype_name(dtype));
  }
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
