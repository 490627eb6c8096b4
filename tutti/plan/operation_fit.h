// Recorded operations grouped, and the constants of cost.h fitted to each model of cost: the parts
// of calibrate.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/cost.h"
#include "tutti/plan/run_trace.h"

namespace tutti::plan {

// Operations of the same name, sizes and bytes. `op.name` points into `name`: groups are not
// copied.
struct OpGroup {
  spec::Op op;
  std::string name;
  double seconds = 0;  // of a call, the mean
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

// gemm_ratio, gemm_side_count and gemm_depth_count, by the products that `use` takes.
void fit_products(const FitContext& context, const std::vector<OpGroup>& groups,
                  const std::function<bool(const OpGroup&)>& use, Constants& constants);

// attention_ratio and attention_backward_ratio.
void fit_attention(const FitContext& context, const std::vector<OpGroup>& groups,
                   Constants& constants);

// The share of the bandwidth of every operation that moves memory.
void fit_memory(const FitContext& context, const std::vector<OpGroup>& groups,
                Constants& constants);

// What the products' predicted times are to be divided by, on the weighted mean of their
// logarithms, to be the recorded ones. 1 where there is none.
double products_ratio(const FitContext& context, const std::vector<OpGroup>& groups,
                      const Constants& constants);

}  // namespace tutti::plan
