// Sums in f64 (update_ops.h states the contracts): blocks of a fixed size, then their sums in
// order. Memory bound: 4 bytes per element.
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 4;
constexpr int64_t kBlock = 32768;  // elements that one block sums
constexpr int kFinalThreads = 1024;

template <bool wide, bool squares>
__global__ void __launch_bounds__(kThreads)
    block_sums_kernel(const float* x, int64_t count, double* sums) {
  const int64_t begin = blockIdx.x * kBlock;
  const int64_t end = min(count, begin + kBlock);
  double sum = 0;
#pragma unroll 4
  for (int64_t j = begin + threadIdx.x * kPiece; j < end; j += kThreads * kPiece) {
    float v[kPiece];
    load_piece<kPiece, wide>(x + j, end - j, 0, v);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const auto value = static_cast<double>(v[i]);
      sum += squares ? value * value : value;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kFinalThreads)
    total_kernel(const double* sums, int64_t blocks, bool accumulate, double* total) {
  double sum = 0;
  for (int64_t b = threadIdx.x; b < blocks; b += kFinalThreads) sum += sums[b];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = accumulate ? *total + sum : sum;
}

template <bool squares>
void sum_all(CudaStream& cuda, const char* op, const Vector& x, bool accumulate, double* total) {
  const unsigned blocks = blocks_for(x.count, kBlock);
  auto* sums =
      static_cast<double*>(cuda.workspace(int64_t{blocks} * static_cast<int64_t>(sizeof(double))));
  with_flag(wide_rows(kPiece, x), [&](auto wide) {
    launch(cuda, op, block_sums_kernel<wide.value, squares>, dim3(blocks), dim3(kThreads), 0,
           x.as<float>(), x.count, sums);
  });
  launch(cuda, op, total_kernel, dim3(1), dim3(kFinalThreads), 0, sums, int64_t{blocks}, accumulate,
         total);
}

}  // namespace

void cuda_squared_norm(Stream& stream, const SquaredNormArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  sum_all<true>(cuda, what.op, args.x, false, args.sum_of_squares);
  record(cuda, what, begin);
}

void cuda_sum(Stream& stream, const SumArgs& args) {
  CudaStream& cuda = cuda_stream(stream);
  begin_op(cuda);
  sum_all<false>(cuda, "sum", args.x, args.accumulate, args.total);
  finish_op(cuda, "sum");
}

}  // namespace tutti::engine
