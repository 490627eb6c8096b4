#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/loss_check.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/cross_entropy_shard.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/softmax_row.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

template <typename From>
void shard_rows(const CrossEntropyShardArgs& args, int64_t begin, int64_t end) {
  const auto* targets = args.targets.as<int32_t>();
  auto* statistics = args.statistics.as<float>();
  for (int64_t r = begin; r < end; ++r) {
    const From* x = args.logits.row<From>(r);
    const int64_t target = targets[r] - args.first_column;
    const bool here = targets[r] >= 0 && target >= 0 && target < args.vocabulary;
    statistics[2 * r] = targets[r] < 0 ? 0 : log_sum_exp(x, args.vocabulary);
    statistics[2 * r + 1] = here ? value(x[target]) : 0;
  }
}

// The merged statistics of one row: log-sum-exp and the target's logit.
struct MergedRow {
  float lse;
  float target;
};
inline MergedRow merged(const CrossEntropyMergeArgs& args, int64_t r) {
  const int64_t rows = args.targets.count;
  const int64_t ways = args.statistics.count / (2 * rows);
  const auto* statistics = args.statistics.as<float>();
  const auto at = [&](int64_t way) { return statistics + 2 * (way * rows + r); };
  float highest = -std::numeric_limits<float>::max();
  for (int64_t way = 0; way < ways; ++way) highest = std::max(highest, at(way)[0]);
  float sum = 0;
  float target = 0;
  for (int64_t way = 0; way < ways; ++way) {
    sum += std::exp(at(way)[0] - highest);
    target += at(way)[1];
  }
  return {highest + std::log(sum), target};
}

template <typename From, typename To>
void merge_rows(const CrossEntropyMergeArgs& args, int64_t begin, int64_t end) {
  const auto* targets = args.targets.as<int32_t>();
  auto* loss = args.loss.as<float>();
  const bool gradient = static_cast<bool>(args.d_logits);
  const float inverse_cap = args.softcap > 0 ? 1 / args.softcap : 0;
  for (int64_t r = begin; r < end; ++r) {
    To* d = gradient ? args.d_logits.row<To>(r) : nullptr;
    int64_t written = 0;
    if (targets[r] < 0) {
      loss[r] = 0;
    } else {
      const MergedRow row = merged(args, r);
      loss[r] = row.lse - row.target;
      if (gradient) {
        const From* x = args.logits.row<From>(r);
        const int64_t target = targets[r] - args.first_column;
        if (target >= 0 && target < args.vocabulary) {
          cross_entropy_gradient(x, d, args.vocabulary, target, row.lse, loss[r],
                                 args.gradient_scale, inverse_cap);
        } else {
          scaled_softmax(x, d, args.vocabulary, row.lse, args.gradient_scale, inverse_cap);
        }
        written = args.vocabulary;
      }
    }
    if (gradient) clear(d, written, args.d_logits.cols);
  }
}

void shard_f32(const CrossEntropyShardArgs& args, int64_t begin, int64_t end) {
  shard_rows<float>(args, begin, end);
}
void shard_bf16(const CrossEntropyShardArgs& args, int64_t begin, int64_t end) {
  shard_rows<bf16>(args, begin, end);
}
void merge_f32_f32(const CrossEntropyMergeArgs& args, int64_t begin, int64_t end) {
  merge_rows<float, float>(args, begin, end);
}
void merge_f32_bf16(const CrossEntropyMergeArgs& args, int64_t begin, int64_t end) {
  merge_rows<float, bf16>(args, begin, end);
}
void merge_bf16_f32(const CrossEntropyMergeArgs& args, int64_t begin, int64_t end) {
  merge_rows<bf16, float>(args, begin, end);
}
void merge_bf16_bf16(const CrossEntropyMergeArgs& args, int64_t begin, int64_t end) {
  merge_rows<bf16, bf16>(args, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(shard_f32);
HWY_EXPORT(shard_bf16);
HWY_EXPORT(merge_f32_f32);
HWY_EXPORT(merge_f32_bf16);
HWY_EXPORT(merge_bf16_f32);
HWY_EXPORT(merge_bf16_bf16);

void cpu_cross_entropy_shard(Stream& stream, const CrossEntropyShardArgs& args) {
  const int64_t n = args.logits.rows;
  const OpRecord what = describe(args);
  check_targets(what.op, args.targets, args.all_columns);
  const double begin = begin_op(stream);
  const auto function = args.logits.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(shard_bf16)
                                                         : HWY_DYNAMIC_DISPATCH(shard_f32);
  parallel_ranges(n, 1, [&](int64_t first, int64_t last, int) { function(args, first, last); });
  record(stream, what, begin);
}

void cpu_cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args) {
  const int64_t n = args.logits.rows;
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  const bool narrow_out = args.d_logits && args.d_logits.dtype == DType::bf16;
  auto function = HWY_DYNAMIC_DISPATCH(merge_f32_f32);
  if (args.logits.dtype == DType::bf16) {
    function =
        narrow_out ? HWY_DYNAMIC_DISPATCH(merge_bf16_bf16) : HWY_DYNAMIC_DISPATCH(merge_bf16_f32);
  } else if (narrow_out) {
    function = HWY_DYNAMIC_DISPATCH(merge_f32_bf16);
  }
  parallel_ranges(n, 1, [&](int64_t first, int64_t last, int) { function(args, first, last); });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
