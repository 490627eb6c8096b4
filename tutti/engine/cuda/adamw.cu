// One pass over gradient, master and moments (update_ops.h states the contract). Memory bound: 28
// bytes per parameter, 30 with bf16 weights, 24 with bf16 masters. Segments are kernel arguments,
// so nothing has to be copied before the launch; a launch takes kMostSegments of them.
#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/engine/cuda/adamw_math.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/philox.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/stochastic_bf16.h"
#include "tutti/engine/update_scalars.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 4;

// Kernel arguments are limited to 4 KiB.
template <bool numbered>
inline constexpr int kMostSegments = numbered ? 64 : 256;

template <bool numbered>
struct Segments {
  int count;
  int64_t begin;                         // of the first segment
  int64_t end[kMostSegments<numbered>];  // ascending
  float weight_decay[kMostSegments<numbered>];
  AdamwSegment::Numbers numbers[numbered ? kMostSegments<numbered> : 1];

  __device__ int64_t begin_of(int i) const { return i == 0 ? begin : end[i - 1]; }
};

template <typename Master>
struct State {
  const float* gradient;
  Master* master;
  float* m;
  float* v;
  bf16* weights;  // optional
};

// Halves of Philox blocks; consecutive elements share a block.
struct Halves {
  uint64_t step;
  uint64_t key = 0;
  int64_t block = -1;
  PhiloxWords words = {};

  __device__ uint32_t of(uint64_t stream, int64_t number) {
    const int64_t wanted = number / kHalvesPerBlock;
    if (wanted != block || stream != key) {
      key = stream;
      block = wanted;
      words = philox_words(key, static_cast<uint64_t>(block), step);
    }
    const int64_t half = number % kHalvesPerBlock;
    return half_of(words.word(static_cast<int>(half / 2)), half);
  }
};

// `stochastic`: rounding of bf16 masters.
template <typename Master, bool stochastic, bool wide>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(State<Master> s, AdamwFactors factors, UpdateScalars now,
                 const UpdateScalars* scalars,
                 const __grid_constant__ Segments<stochastic> segments) {
  if (scalars != nullptr) {
    if (scalars->apply == 0) return;
    now = *scalars;
    factors.clip = now.clip;
    factors.step_size = now.step_size;
    factors.inverse_root = now.inverse_root;
  }
  const int64_t end = segments.end[segments.count - 1];
  // Pieces begin at multiples of kPiece of the whole range, independent of segments.
  const int64_t first = segments.begin / kPiece * kPiece;
  const int64_t j = first + (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPiece;
  if (j >= end) return;
  int low = 0;  // the segment of the first element: the first that ends after it
  for (int high = segments.count - 1; low < high;) {
    const int middle = (low + high) / 2;
    if (segments.end[middle] > j) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  float decay[kPiece];
  [[maybe_unused]] uint32_t half[kPiece];
  [[maybe_unused]] Halves halves{static_cast<uint64_t>(now.update)};
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    while (low < segments.count - 1 && segments.end[low] <= j + i) ++low;
    decay[i] = now.learning_rate * segments.weight_decay[low];
    half[i] = 0;
    if constexpr (stochastic) {
      const AdamwSegment::Numbers& numbers = segments.numbers[low];
      const int64_t within = j + i - segments.begin_of(low);
      if (within >= 0) half[i] = halves.of(numbers.key, element_number(numbers, within));
    }
  }
  // The value to store for an exact result: already rounded for bf16, so the store keeps its bits.
  const auto rounded = [&](float exact, [[maybe_unused]] int i) {
    if constexpr (stochastic) {
      return __uint_as_float(uint32_t{stochastic_bf16(exact, half[i])} << 16);
    } else {
      return exact;
    }
  };
  const bool whole = j >= segments.begin && j + kPiece <= end;
  if (wide && whole) {
    float g[kPiece];
    float p[kPiece];
    float m[kPiece];
    float v[kPiece];
    load_aligned<kPiece>(s.gradient + j, g);
    load_aligned<kPiece>(s.master + j, p);
    load_aligned<kPiece>(s.m + j, m);
    load_aligned<kPiece>(s.v + j, v);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const AdamwElement e = adamw_step({p[i], m[i], v[i]}, g[i], decay[i], factors);
      p[i] = rounded(e.p, i);
      m[i] = e.m;
      v[i] = e.v;
    }
    store_aligned<kPiece>(p, s.master + j);
    store_aligned<kPiece>(m, s.m + j);
    store_aligned<kPiece>(v, s.v + j);
    if (s.weights != nullptr) store_aligned<kPiece>(p, s.weights + j);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const int64_t at = j + i;
    if (at < segments.begin || at >= end) continue;
    const AdamwElement e =
        adamw_step({widen(s.master[at]), s.m[at], s.v[at]}, s.gradient[at], decay[i], factors);
    narrow(rounded(e.p, i), s.master[at]);
    s.m[at] = e.m;
    s.v[at] = e.v;
    if (s.weights != nullptr) narrow(e.p, s.weights[at]);
  }
}

template <typename Master, bool stochastic>
void launch_adamw(CudaStream& stream, const char* op, const AdamwArgs& args,
                  const AdamwFactors& factors, const UpdateScalars& now) {
  constexpr int kMost = kMostSegments<stochastic>;
  const State<Master> state{.gradient = args.gradient.as<float>(),
                            .master = args.master.as<Master>(),
                            .m = args.m.as<float>(),
                            .v = args.v.as<float>(),
                            .weights = data_of<bf16>(args.weights)};
  const bool aligned = all_wide(kPiece, args.gradient, args.master, args.m, args.v, args.weights);
  const auto all = static_cast<int64_t>(args.segments.size());
  for (int64_t at = 0; at < all; at += kMost) {
    Segments<stochastic> segments{};
    segments.count = static_cast<int>(std::min<int64_t>(kMost, all - at));
    const AdamwSegment* from = args.segments.data() + at;
    segments.begin = from[0].first;
    for (int i = 0; i < segments.count; ++i) {
      segments.end[i] = from[i].first + from[i].count;
      segments.weight_decay[i] = from[i].weight_decay;
      if constexpr (stochastic) segments.numbers[i] = from[i].numbers;
    }
    const int64_t covered = segments.end[segments.count - 1] - segments.begin / kPiece * kPiece;
    if (segments.end[segments.count - 1] == segments.begin) continue;
    with_flag(aligned, [&](auto wide) {
      launch(stream, op, adamw_kernel<Master, stochastic, wide.value>,
             dim3(blocks_for(covered, int64_t{kThreads} * kPiece)), dim3(kThreads), 0, state,
             factors, now, args.scalars, segments);
    });
  }
}

}  // namespace

void cuda_adamw(Stream& stream, const AdamwArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.sums == nullptr, "adamw: checksums are not supported on this device");
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const UpdateScalars now =
      update_scalars(static_cast<double>(args.learning_rate), static_cast<double>(args.step),
                     args.beta1, args.beta2, args.clip);
  const AdamwFactors factors{.clip = now.clip,
                             .beta1 = args.beta1,
                             .rest1 = 1 - args.beta1,
                             .beta2 = args.beta2,
                             .rest2 = 1 - args.beta2,
                             .epsilon = args.epsilon,
                             .step_size = now.step_size,
                             .inverse_root = now.inverse_root};
  if (args.master.dtype == DType::f32) {
    launch_adamw<float, false>(cuda, what.op, args, factors, now);
  } else if (args.stochastic) {
    launch_adamw<bf16, true>(cuda, what.op, args, factors, now);
  } else {
    launch_adamw<bf16, false>(cuda, what.op, args, factors, now);
  }
  record(cuda, what, begin);
}

}  // namespace tutti::engine
