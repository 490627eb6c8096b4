// The sum that ends a pipeline stage (ops.h states the contract).
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/residual_add.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

template <typename T>
void residual_add_rows(const ResidualAddArgs& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* residual = args.residual.row<float>(r);
    const T* branch = args.branch.row<T>(r);
    float* out = args.out.row<float>(r);
    for_lanes(args.out.cols, [&](int64_t j, auto block, auto /*slot*/) TUTTI_LANES_BODY {
      store(hn::Add(load(residual + j, block), load(branch + j, block)), out + j, block);
    });
  }
}

void residual_add_f32(const ResidualAddArgs& args, int64_t begin, int64_t end) {
  residual_add_rows<float>(args, begin, end);
}
void residual_add_bf16(const ResidualAddArgs& args, int64_t begin, int64_t end) {
  residual_add_rows<bf16>(args, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {

HWY_EXPORT(residual_add_f32);
HWY_EXPORT(residual_add_bf16);

void cpu_residual_add(Stream& stream, const ResidualAddArgs& args) {
  TUTTI_CHECK(args.residual.rows == args.out.rows && args.branch.rows == args.out.rows &&
                  args.residual.cols == args.out.cols && args.branch.cols == args.out.cols,
              "residual_add: {}x{} and {}x{} to {}x{}", args.residual.rows, args.residual.cols,
              args.branch.rows, args.branch.cols, args.out.rows, args.out.cols);
  constexpr int64_t kGrainRows = 4;
  const double begin = begin_op(stream);
  parallel_ranges(args.out.rows, kGrainRows, [&](int64_t first, int64_t last, int) {
    if (args.branch.dtype == DType::bf16) {
      HWY_DYNAMIC_DISPATCH(residual_add_bf16)(args, first, last);
    } else {
      HWY_DYNAMIC_DISPATCH(residual_add_f32)(args, first, last);
    }
  });
  record(stream, "residual_add", {args.out.rows, args.out.cols}, 0,
         static_cast<double>(args.residual.bytes() + args.branch.bytes() + args.out.bytes()),
         begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
