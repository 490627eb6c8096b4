// Scaling of a run with the number of GPUs, and its losses.
//
// For every GPU count each part of a step takes some GPU-seconds per token. Relative to the
// smallest count (the base), efficiency is the base's GPU-seconds per token over a count's; the
// loss is the growth of each part. Strong scaling keeps the global batch, weak scaling grows it
// with the GPUs.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/choice.h"

namespace tutti::plan {

struct ScalingRow {
  Choice choice;
  int64_t global_batch = 0;
  double tokens_per_second = 0;
  double speedup = 0;     // tokens per second over the base's
  double efficiency = 0;  // speed-up over the growth in GPUs
  // Where the GPU-seconds beyond the base's are lost, as shares of this row's, largest first; parts
  // that shrank are negative.
  std::vector<std::pair<const SplitPart*, double>> lost;
};

// `choices` ascend in GPUs and all fit; global_batches has one entry for each; the first is the
// base.
std::vector<ScalingRow> scaling_rows(std::vector<Choice> choices,
                                     const std::vector<int64_t>& global_batches, int64_t sequence);

// "pipeline bubble 12.0%, host and stragglers 1.1%": losses of at least half a per cent; "" if
// there are none.
std::string lost_text(const ScalingRow& row);

}  // namespace tutti::plan
