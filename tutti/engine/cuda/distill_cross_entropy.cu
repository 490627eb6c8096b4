// Like cross_entropy.cu, over two rows of logits at a time (ops.h states the contract).
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/softmax_row.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

struct Distill {
  int64_t vocabulary;
  const int32_t* targets;
  float temperature, weight, scale;
  float* loss;
  float* divergence;
};

// KL(softmax(t / T) || softmax(x / T)).
template <bool wide, typename From>
__device__ float divergence_of(const From* x, RowSum x_sum, const From* t, RowSum t_sum,
                               int64_t count, float inverse) {
  constexpr int V = kPieceOf<From>;
  float sum = 0;
  const int64_t stride = static_cast<int64_t>(blockDim.x) * V;
  for (int64_t j = static_cast<int64_t>(threadIdx.x) * V; j < count; j += stride) {
    float a[V];
    float b[V];
    load_piece<V, wide>(x + j, count - j, 0, a);
    load_piece<V, wide>(t + j, count - j, 0, b);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float log_p = t_sum.log_softmax(b[i], inverse);
      const float log_q = x_sum.log_softmax(a[i], inverse);
      sum += j + i < count ? expf(log_p) * (log_p - log_q) : 0;
    }
  }
  return block_sum(sum);
}

template <typename From, typename To, bool wide>
__global__ void __launch_bounds__(kMostLossThreads)
    distill_kernel(Distill p, Rows<const From> logits, Rows<const From> teacher, Rows<To> d_logits,
                   int64_t d_cols) {
  const int64_t r = blockIdx.x;
  const From* x = logits.row(r);
  const From* t = teacher.row(r);
  const int64_t target = p.targets[r];
  if (target >= p.vocabulary) {
    device_fail("distill_cross_entropy: target (target, row)", target, r);
  }
  if (target < 0) {
    if (threadIdx.x == 0) p.loss[r] = p.divergence[r] = 0;
    if (d_logits) clear(d_logits.row(r), 0, d_cols);
    return;
  }
  const float inverse = 1.0F / p.temperature;
  const float x_target = widen(x[target]);  // the gradient may overlay it
  const float t_target = widen(t[target]);
  const float lse = row_sum<wide>(x, p.vocabulary, 1).log_sum_exp();
  const RowSum x_sum = row_sum<wide>(x, p.vocabulary, inverse);
  const RowSum t_sum = row_sum<wide>(t, p.vocabulary, inverse);
  const float row_loss = lse - x_target;
  const float kl = divergence_of<wide>(x, x_sum, t, t_sum, p.vocabulary, inverse);
  if (threadIdx.x == 0) {
    p.loss[r] = row_loss;
    p.divergence[r] = p.temperature * p.temperature * kl;
  }
  if (!d_logits) return;
  To* d = d_logits.row(r);
  if (p.weight == 0) {
    const CrossEntropyGradient gradient(lse, row_loss, target, p.scale);
    store_gradient<wide>(x, d, p.vocabulary, gradient);
  } else {
    const float hard = p.scale * (1 - p.weight);
    const float soft = p.scale * p.weight * p.temperature;
    const float apart =
        expf(x_sum.log_softmax(x_target, inverse)) - expf(t_sum.log_softmax(t_target, inverse));
    const float at_target = hard * (expf(-row_loss) - 1.0F) + soft * apart;
    store_gradient<wide>(x, d, p.vocabulary, [&](float logit, int64_t j) {
      if (j >= p.vocabulary) return 0.0F;  // the end of the last piece
      if (j == target) return at_target;
      const float parted =
          expf(x_sum.log_softmax(logit, inverse)) - expf(t_sum.log_softmax(widen(t[j]), inverse));
      return hard * expf(logit - lse) + soft * parted;
    });
  }
  clear(d, p.vocabulary, d_cols);
}

}  // namespace

void cuda_distill_cross_entropy(Stream& stream, const DistillCrossEntropyArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const Distill p{.vocabulary = args.vocabulary,
                  .targets = args.targets.as<int32_t>(),
                  .temperature = args.temperature,
                  .weight = args.weight,
                  .scale = args.gradient_scale,
                  .loss = args.loss.as<float>(),
                  .divergence = args.divergence.as<float>()};
  with_loss_types(args.logits, args.d_logits, [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    const bool aligned = loss_rows_wide<From>(args.logits, args.d_logits) &&
                         wide_rows(kPieceOf<From>, args.teacher_logits);
    with_flag(aligned, [&](auto wide) {
      launch(cuda, what.op, distill_kernel<From, To, wide.value>,
             dim3(static_cast<unsigned>(args.logits.rows)), dim3(loss_threads(args.vocabulary)), 0,
             p, rows_of<const From>(args.logits), rows_of<const From>(args.teacher_logits),
             rows_of<To>(args.d_logits), args.d_logits.cols);
    });
  });
  record(cuda, what, begin);
}

}  // namespace tutti::engine
