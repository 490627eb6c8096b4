// The scalar operations between gradients and their update, by a few threads, and the search for
// non-finite elements, which returns at once if the update applies (update_ops.h states the
// contracts).
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/update_scalars.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 1024;  // few enough to be cheap if there is nothing to search

__global__ void __launch_bounds__(kThreads) add_rows_kernel(AddRowsArgs args) {
  for (int64_t j = threadIdx.x; j < args.width; j += kThreads) {
    args.total[j] = column_total(args, j);
  }
}

__global__ void prepare_update_kernel(PrepareUpdateArgs args) {
  if (!(*args.targets >= 0 && *args.updates >= 0)) {
    device_fail("prepare_update: updates, targets", static_cast<long long>(*args.updates),
                static_cast<long long>(*args.targets));
  }
  prepare_update(args);
}

__global__ void __launch_bounds__(kThreads)
    find_nonfinite_kernel(const float* x, const int64_t* ends, int64_t segments, int64_t first,
                          const UpdateScalars* scalars, int64_t* found) {
  if (scalars->apply != 0) return;
  const int64_t count = ends[segments - 1];
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    if (isfinite(x[i])) continue;
    int64_t low = 0;  // the segment: the first that ends after i
    for (int64_t high = segments - 1; low < high;) {
      const int64_t middle = (low + high) / 2;
      if (ends[middle] > i) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    static_assert(sizeof(long long) == sizeof(int64_t));
    atomicMax(reinterpret_cast<long long*>(found), static_cast<long long>(first + low));
  }
}

}  // namespace

void cuda_add_rows(Stream& stream, const AddRowsArgs& args) {
  CudaStream& cuda = cuda_stream(stream);
  begin_op(cuda);
  launch(cuda, "add_rows", add_rows_kernel, dim3(args.width > 0 ? 1 : 0), dim3(kThreads), 0, args);
  finish_op(cuda, "add_rows");
}

void cuda_prepare_update(Stream& stream, const PrepareUpdateArgs& args) {
  CudaStream& cuda = cuda_stream(stream);
  begin_op(cuda);
  launch(cuda, "prepare_update", prepare_update_kernel, dim3(1), dim3(1), 0, args);
  finish_op(cuda, "prepare_update");
}

void cuda_find_nonfinite(Stream& stream, const FindNonfiniteArgs& args) {
  CudaStream& cuda = cuda_stream(stream);
  begin_op(cuda);
  if (args.ends.count > 0) {
    launch(cuda, "find_nonfinite", find_nonfinite_kernel,
           dim3(std::min(kMostBlocks, blocks_for(args.x.count, kThreads))), dim3(kThreads), 0,
           args.x.as<float>(), args.ends.as<int64_t>(), args.ends.count, args.first, args.scalars,
           args.found);
  }
  finish_op(cuda, "find_nonfinite");
}

}  // namespace tutti::engine
