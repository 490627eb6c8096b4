// Vocabulary parallel cross-entropy (vocabulary_ops.h states the contracts).
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/softmax_row.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

template <typename From, bool wide>
__global__ void __launch_bounds__(kMostLossThreads)
    shard_kernel(Rows<const From> logits, int64_t vocabulary, int64_t first_column,
                 int64_t all_columns, const int32_t* targets, float* statistics) {
  const int64_t r = blockIdx.x;
  const From* x = logits.row(r);
  const int64_t target = targets[r];
  if (target >= all_columns) device_fail("cross_entropy_shard: target (target, row)", target, r);
  float lse = 0;
  if (target >= 0) lse = row_sum<wide>(x, vocabulary, 1).log_sum_exp();
  if (threadIdx.x != 0) return;
  const int64_t here = target - first_column;
  statistics[2 * r] = lse;
  statistics[2 * r + 1] = target >= 0 && here >= 0 && here < vocabulary ? widen(x[here]) : 0;
}

template <typename From, typename To, bool wide>
__global__ void __launch_bounds__(kMostLossThreads)
    merge_kernel(Rows<const From> logits, int64_t vocabulary, int64_t first_column,
                 const int32_t* targets, int64_t rows, int64_t ways, const float* statistics,
                 float scale, float* loss, Rows<To> d_logits, int64_t d_cols) {
  const int64_t r = blockIdx.x;
  if (targets[r] < 0) {
    if (threadIdx.x == 0) loss[r] = 0;
    if (d_logits) clear(d_logits.row(r), 0, d_cols);
    return;
  }
  float highest = -FLT_MAX;
  for (int64_t way = 0; way < ways; ++way) {
    highest = fmaxf(highest, statistics[2 * (way * rows + r)]);
  }
  float sum = 0;
  float at_target = 0;
  for (int64_t way = 0; way < ways; ++way) {
    sum += expf(statistics[2 * (way * rows + r)] - highest);
    at_target += statistics[2 * (way * rows + r) + 1];
  }
  const float lse = highest + logf(sum);
  const float row_loss = lse - at_target;
  if (threadIdx.x == 0) loss[r] = row_loss;
  if (!d_logits) return;
  const int64_t here = targets[r] - first_column;
  const CrossEntropyGradient gradient(lse, row_loss,
                                      here >= 0 && here < vocabulary ? here : int64_t{-1}, scale);
  store_gradient<wide>(logits.row(r), d_logits.row(r), vocabulary, gradient);
  clear(d_logits.row(r), vocabulary, d_cols);
}

}  // namespace

void cuda_cross_entropy_shard(Stream& stream, const CrossEntropyShardArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  with_dtype(args.logits.dtype, [&](auto type) {
    using From = decltype(type);
    with_flag(wide_rows(kPieceOf<From>, args.logits), [&](auto wide) {
      launch(cuda, what.op, shard_kernel<From, wide.value>,
             dim3(static_cast<unsigned>(args.logits.rows)), dim3(loss_threads(args.vocabulary)), 0,
             rows_of<const From>(args.logits), args.vocabulary, args.first_column, args.all_columns,
             args.targets.as<int32_t>(), args.statistics.as<float>());
    });
  });
  record(cuda, what, begin);
}

void cuda_cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.softcap == 0, "{}: softcap is not supported on cuda", what.op);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t rows = args.logits.rows;
  const int64_t ways = rows == 0 ? 0 : args.statistics.count / (2 * rows);
  with_loss_types(args.logits, args.d_logits, [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    with_flag(loss_rows_wide<From>(args.logits, args.d_logits), [&](auto wide) {
      launch(cuda, what.op, merge_kernel<From, To, wide.value>, dim3(static_cast<unsigned>(rows)),
             dim3(loss_threads(args.vocabulary)), 0, rows_of<const From>(args.logits),
             args.vocabulary, args.first_column, args.targets.as<int32_t>(), rows, ways,
             args.statistics.as<float>(), args.gradient_scale, args.loss.as<float>(),
             rows_of<To>(args.d_logits), args.d_logits.cols);
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
