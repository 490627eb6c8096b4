#include "tutti/plan/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/real.h"

namespace tutti::plan {
std::vector<ScalingRow> scaling_rows(std::vector<Choice> choices,
                                     const std::vector<int64_t>& global_batches, int64_t sequence) {
  TUTTI_CHECK(choices.size() == global_batches.size(), "{} choices, {} batches", choices.size(),
              global_batches.size());
  std::vector<ScalingRow> rows;
  for (size_t i = 0; i < choices.size(); ++i) {
    ScalingRow row;
    row.choice = std::move(choices[i]);
    row.global_batch = global_batches[i];
    const StepPrediction& step = row.choice.found.step;
    const double tokens = real(row.global_batch) * real(sequence);
    row.tokens_per_second = tokens / step.step_seconds;
    const ScalingRow& base = rows.empty() ? row : rows.front();
    const StepPrediction& base_step = base.choice.found.step;
    const double base_tokens = real(base.global_batch) * real(sequence);
    row.speedup = row.tokens_per_second / base.tokens_per_second;
    row.efficiency = row.speedup * real(base.choice.gpus) / real(row.choice.gpus);
    const double whole = step.step_seconds * real(row.choice.gpus) / tokens;
    for (const SplitPart& part : split_parts()) {
      const double now = step.split.*part.seconds * real(row.choice.gpus) / tokens;
      const double before = base_step.split.*part.seconds * real(base.choice.gpus) / base_tokens;
      row.lost.emplace_back(&part, (now - before) / whole);
    }
    std::stable_sort(row.lost.begin(), row.lost.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string lost_text(const ScalingRow& row) {
  std::string text;
  for (const auto& [part, share] : row.lost) {
    if (share < 0.005) break;
    text += fmt::format("{}{} {:.1f}%", text.empty() ? "" : ", ", part->label, 100 * share);
  }
  return text;
}

}  // namespace tutti::plan
