// moe_ops.h states the contract.
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {

void cpu_update_selection_bias(Stream& stream, const UpdateSelectionBiasArgs& args) {
  const int64_t experts = args.load.count;
  const int64_t count = args.bias.count;
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  if (args.scalars != nullptr && args.scalars->apply == 0) {
    record(stream, what, begin);
    return;
  }
  const auto* load = args.load.as<float>();
  auto* bias = args.bias.as<float>();
  double sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += static_cast<double>(load[e]);
  for (int64_t e = 0; e < count; ++e) {
    const double missing =
        sum / static_cast<double>(experts) - static_cast<double>(load[args.first + e]);
    bias[e] += missing > 0 ? args.rate : missing < 0 ? -args.rate : 0;
    if (args.weights) args.weights.as<bf16>()[e] = to_bf16(bias[e]);
  }
  record(stream, what, begin);
}

}  // namespace tutti::engine
