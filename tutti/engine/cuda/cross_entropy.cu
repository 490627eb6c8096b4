// One block per row of logits (ops.h states the contract). Bytes per logit with bf16: 2 read, 2
// read again and 2 written; the second read hits the L2 cache for rows of up to about 200 KB.
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/softmax_row.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

template <typename From, typename To, bool wide>
__global__ void __launch_bounds__(kMostLossThreads)
    cross_entropy_kernel(Rows<const From> logits, int64_t vocabulary, const int32_t* targets,
                         float scale, float* loss, Rows<To> d_logits, int64_t d_cols) {
  const int64_t r = blockIdx.x;
  const From* x = logits.row(r);
  const int64_t target = targets[r];
  if (target >= vocabulary) device_fail("cross_entropy: target (target, row)", target, r);
  if (target < 0) {
    if (threadIdx.x == 0) loss[r] = 0;
    if (d_logits) clear(d_logits.row(r), 0, d_cols);
    return;
  }
  const float at_target = widen(x[target]);  // the gradient may overlay it
  const float lse = row_sum<wide>(x, vocabulary, 1).log_sum_exp();
  const float row_loss = lse - at_target;
  if (threadIdx.x == 0) loss[r] = row_loss;
  if (!d_logits) return;
  const CrossEntropyGradient gradient(lse, row_loss, target, scale);
  store_gradient<wide>(x, d_logits.row(r), vocabulary, gradient);
  clear(d_logits.row(r), vocabulary, d_cols);
}

}  // namespace

void cuda_cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  const OpRecord what = describe(args);
  TUTTI_CHECK(args.softcap == 0, "{}: softcap is not supported on cuda", what.op);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  with_loss_types(args.logits, args.d_logits, [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    with_flag(loss_rows_wide<From>(args.logits, args.d_logits), [&](auto wide) {
      launch(cuda, what.op, cross_entropy_kernel<From, To, wide.value>,
             dim3(static_cast<unsigned>(args.logits.rows)), dim3(loss_threads(args.vocabulary)), 0,
             rows_of<const From>(args.logits), args.vocabulary, args.targets.as<int32_t>(),
             args.gradient_scale, args.loss.as<float>(), rows_of<To>(args.d_logits),
             args.d_logits.cols);
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
