// Biases of experts and their gradients (moe_ops.h states the contracts). Threads split rows, or
// the columns of a sum, so that results do not depend on their number.
#include <algorithm>

#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/row_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/grouped_bias.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

// Rows [begin, end), all of expert `expert`.
template <typename T>
void add_bias(const GroupedBiasArgs& args, int64_t expert, int64_t begin, int64_t end) {
  const T* bias = args.bias.as<T>() + expert * args.x.cols;
  for (int64_t r = begin; r < end; ++r) {
    T* x = args.x.row<T>(r);
    for_lanes(args.x.cols, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      store(hn::Add(load(x + j, block), load(bias + j, block)), x + j, block);
    });
  }
}

// Adds columns [begin, end) of rows [first, last) to sum.
template <typename T>
void add_columns(const GroupedColumnSumArgs& args, int64_t first, int64_t last, int64_t begin,
                 int64_t end, float* sum) {
  const F32 scale = set(args.scale);
  for (int64_t r = first; r < last; ++r) {
    const T* dy = args.dy.row<T>(r);
    for_lanes(end - begin, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
      const F32 x = load(dy + begin + j, block);
      store(hn::MulAdd(x, scale, load(sum + begin + j, block)), sum + begin + j, block);
    });
  }
}

void add_bias_f32(const GroupedBiasArgs& a, int64_t expert, int64_t begin, int64_t end) {
  add_bias<float>(a, expert, begin, end);
}
void add_bias_bf16(const GroupedBiasArgs& a, int64_t expert, int64_t begin, int64_t end) {
  add_bias<bf16>(a, expert, begin, end);
}
void add_columns_f32(const GroupedColumnSumArgs& a, int64_t first, int64_t last, int64_t begin,
                     int64_t end, float* sum) {
  add_columns<float>(a, first, last, begin, end, sum);
}
void add_columns_bf16(const GroupedColumnSumArgs& a, int64_t first, int64_t last, int64_t begin,
                      int64_t end, float* sum) {
  add_columns<bf16>(a, first, last, begin, end, sum);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(add_bias_f32);
HWY_EXPORT(add_bias_bf16);
HWY_EXPORT(add_columns_f32);
HWY_EXPORT(add_columns_bf16);

}  // namespace

void cpu_grouped_bias(Stream& stream, const GroupedBiasArgs& args) {
  OpRecord what = describe(args);
  const RowGroups groups = row_groups(args, args.x.rows);
  add_used_rows(what, args, used_rows(what.op, groups));
  const int64_t experts = args.bias.count / args.x.cols;
  const double begin = begin_op(stream);
  const auto add = args.x.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(add_bias_bf16)
                                               : HWY_DYNAMIC_DISPATCH(add_bias_f32);
  for (int64_t group = 0; group < groups.count(); ++group) {
    const int64_t first = groups.begin(group);
    parallel_ranges(groups.end(group) - first, 16, [&](int64_t from, int64_t until, int) {
      add(args, group % experts, first + from, first + until);
    });
  }
  record(stream, what, begin);
}

void cpu_grouped_column_sum(Stream& stream, const GroupedColumnSumArgs& args) {
  OpRecord what = describe(args);
  const RowGroups groups = row_groups(args, args.dy.rows);
  add_used_rows(what, args, used_rows(what.op, groups));
  const int64_t columns = args.dy.cols;
  const int64_t experts = args.d_bias.count / columns;
  const double begin = begin_op(stream);
  const auto add = args.dy.dtype == DType::bf16 ? HWY_DYNAMIC_DISPATCH(add_columns_bf16)
                                                : HWY_DYNAMIC_DISPATCH(add_columns_f32);
  parallel_ranges(columns, 64, [&](int64_t first, int64_t last, int) {
    for (int64_t e = 0; e < experts; ++e) {
      float* sum = args.d_bias.as<float>() + e * columns;
      if (args.beta == 0) std::fill(sum + first, sum + last, 0.0F);
      for (int64_t group = e; group < groups.count(); group += experts) {
        add(args, groups.begin(group), groups.end(group), first, last, sum);
      }
    }
  });
  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
