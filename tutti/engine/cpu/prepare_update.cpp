// The scalar operations between gradients and their update (update_ops.h states the contracts).
#include <algorithm>
#include <cmath>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/update_scalars.h"

namespace tutti::engine {

void cpu_add_rows(Stream& /*stream*/, const AddRowsArgs& args) {
  for (int64_t j = 0; j < args.width; ++j) args.total[j] = column_total(args, j);
}

void cpu_prepare_update(Stream& /*stream*/, const PrepareUpdateArgs& args) {
  TUTTI_CHECK(*args.targets >= 0 && *args.updates >= 0,
              "prepare_update: {} targets after {} updates", *args.targets, *args.updates);
  prepare_update(args);
}

void cpu_find_nonfinite(Stream& /*stream*/, const FindNonfiniteArgs& args) {
  if (args.scalars->apply != 0) return;
  const float* x = args.x.as<float>();
  const int64_t* ends = args.ends.as<int64_t>();
  for (int64_t i = args.ends.count - 1; i >= 0; --i) {
    const float* begin = x + (i == 0 ? 0 : ends[i - 1]);
    if (std::all_of(begin, x + ends[i], [](float value) { return std::isfinite(value); })) continue;
    *args.found = std::max(*args.found, args.first + i);
    return;
  }
}

}  // namespace tutti::engine
