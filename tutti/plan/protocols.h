// Validation protocols that are stricter than holding out half of the layouts of each source:
//
//   leave one model out   within each source, every model is predicted by constants fitted on the
//                         other models: the expected error for a new model
//   transfer              one chip is predicted from constants fitted on another chip and both data
//                         sheets: the expected error for a new chip
//   ranking               among the measured layouts of one model on one machine, is the fastest
//                         among the first by prediction: the expected quality of a search
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/fit.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {

using Progress = std::function<void(int64_t done, int64_t total)>;

// Every predictable row of time is held out once. Rows of memory have no fitted constants and are
// held out unchanged.
Validation leave_one_model_out(const std::vector<PreparedRow>& rows, const FitOptions& options,
                               const Progress& progress);

// The constants of `from`, transferred to chip `to`. Ratios are relative to each chip's own peaks,
// so the data sheets account for most of it. Power limits sustained products: at the same energy
// per FLOP their rate is proportional to the board's power minus its idle power (a fifth, bill.h),
// up to the best share of its peak measured on any chip (A100, unthrottled: 0.87;
// stas00/ml-engineering, compute/accelerator).
Constants transferred(const Constants& constants, const catalog::Chip& from,
                      const catalog::Chip& to);

// Fits on all rows of chip `from`, predicts all rows of chip `to` with the same software, or else
// with the best set of `from`; other rows are skipped with a reason. Throws usage if either has no
// row of time.
Validation transfer(const std::vector<PreparedRow>& rows, const catalog::Catalog& catalog,
                    const std::string& from, const std::string& to, const FitOptions& options,
                    const Progress& progress);

struct Ranking {  // of the layouts of one model, GPUs and batch
  std::string source;
  std::string model;
  int64_t gpus = 0;
  int64_t layouts = 0;
  int line = 0;                      // of the layout that was measured fastest
  int64_t predicted_rank = 0;        // its position by prediction, from 1
  double predicted_first_ratio = 0;  // measured time of the one predicted fastest over the fastest
};
inline constexpr int64_t kRankedLayouts = 4;  // fewest layouts for a ranking

// `validation` belongs to `rows`; only measured step times count.
std::vector<Ranking> rank_layouts(const std::vector<PreparedRow>& rows,
                                  const Validation& validation);

Json to_json(const std::vector<Ranking>& rankings);
std::string format_rankings(const std::vector<Ranking>& rankings);  // empty: nothing to rank

}  // namespace tutti::plan
