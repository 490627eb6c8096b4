// Rotary position embedding in place (ops.h states the contract, cpu/rope.cpp the formulas). One
// block per row: first the sines and cosines of its position, shared by all heads, then the
// rotation. Memory bound: 4 bytes per element with bf16, 8 with f32.
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/rope_math.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;

struct Positions {
  const int32_t* given;  // optional
  int64_t first;
  int64_t sequence;
  __device__ double of(int64_t r) const {
    return static_cast<double>(given != nullptr ? int64_t{given[r]} : first + r % sequence);
  }
};

// Shared memory: sines [half], cosines [half].
template <typename T, bool wide>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(Rows<T> x, int64_t heads, int half, const float* inverse_frequency,
                Positions positions, bool inverse) {
  constexpr int V = kPieceOf<T>;
  auto* angles = dynamic_shared<float>();
  const int64_t r = blockIdx.x;
  const double position = positions.of(r);
  for (int i = threadIdx.x; i < half; i += kThreads) {
    const double angle = static_cast<double>(inverse_frequency[i]) * position;
    const SineCosine turn = sine_cosine(inverse ? -angle : angle);
    angles[i] = turn.sine;
    angles[half + i] = turn.cosine;
  }
  __syncthreads();
  const int pieces = (half + V - 1) / V;  // of half a head
  T* row = x.row(r);
  for (int64_t piece = threadIdx.x; piece < heads * pieces; piece += kThreads) {
    const int64_t head = piece / pieces;
    const int i = static_cast<int>(piece % pieces) * V;
    T* low = row + head * 2 * half + i;
    float a[V];
    float b[V];
    load_piece<V, wide>(low, half - i, 0, a);
    load_piece<V, wide>(low + half, half - i, 0, b);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const int at = min(i + e, half - 1);  // beyond half: not stored
      const float s = angles[at];
      const float c = angles[half + at];
      const float rotated = a[e] * c - b[e] * s;
      b[e] = b[e] * c + a[e] * s;
      a[e] = rotated;
    }
    store_piece<V, wide>(a, low, half - i);
    store_piece<V, wide>(b, low + half, half - i);
  }
}

}  // namespace

void cuda_rope(Stream& stream, const RopeArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.rotated % args.head_dim == 0 && args.amplitude == 1,
              "rope: {} of {} columns, amplitude {} on cuda", args.rotated, args.head_dim,
              args.amplitude);
  CudaStream& cuda = cuda_stream(stream);
  const int64_t half = args.head_dim / 2;
  if (args.x.rows * args.heads * half == 0) return;
  const double begin = begin_op(cuda);
  const Positions positions{data_of<const int32_t>(args.positions), args.first_position,
                            args.sequence};
  with_dtype(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kPiece = kPieceOf<T>;
    with_flag(wide_rows(kPiece, args.x) && half % kPiece == 0, [&](auto wide) {
      launch(cuda, what.op, rope_kernel<T, wide.value>, dim3(static_cast<unsigned>(args.x.rows)),
             dim3(kThreads), static_cast<size_t>(2 * half) * sizeof(float), rows_of<T>(args.x),
             args.heads, half, args.inverse_frequency.as<float>(), positions, args.inverse);
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
