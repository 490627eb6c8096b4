// Groups recorded operations and fits the constants of cost.h to each cost model: the parts of
// calibrate.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/cost.h"
#include "tutti/plan/run_trace.h"

namespace tutti::plan {

// Operations with the same name, sizes and bytes. `op.name` points into `name`, so groups must not
// be copied.
struct OpGroup {
  spec::Op op;
  std::string name;
  double seconds = 0;  // mean per call
  double share = 0;    // of all operations' time
  double calls_per_step = 0;
};
std::vector<OpGroup> group_operations(const RunTrace& trace);

bool is_product(const OpGroup& group);

struct FitContext {
  const catalog::System& system;
  spec::Precision precision;
  double predict(const OpGroup& group, const Constants& constants) const {
    return operation_seconds(group.op, system, constants, precision);
  }
};

// gemm_ratio, gemm_side_count and gemm_depth_count, from the products that `use` accepts.
void fit_products(const FitContext& context, const std::vector<OpGroup>& groups,
                  const std::function<bool(const OpGroup&)>& use, Constants& constants);

// attention_ratio and attention_backward_ratio.
void fit_attention(const FitContext& context, const std::vector<OpGroup>& groups,
                   Constants& constants);

// The share of the bandwidth of every memory-bound operation.
void fit_memory(const FitContext& context, const std::vector<OpGroup>& groups,
                Constants& constants);

// The divisor of the products' predicted times that makes them equal to the recorded ones in the
// weighted mean of their logarithms. 1 if there are none.
double products_ratio(const FitContext& context, const std::vector<OpGroup>& groups,
                      const Constants& constants);

}  // namespace tutti::plan
