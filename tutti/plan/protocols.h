// Stricter questions than half the layouts of each source:
//
//   leave one model out   of each source, every model is predicted by constants fitted on the other
//                         models: what a new model may expect
//   transfer              one chip is predicted from constants fitted on another chip and the two
//                         data sheets: what a new chip may expect
//   ranking               of the layouts measured of one model on one machine, is the fastest among
//                         the first by prediction: what a search over layouts may expect
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/fit.h"
#include "tutti/plan/validate.h"

namespace tutti::plan {

using Progress = std::function<void(int64_t done, int64_t total)>;

// Every predictable row of time is held out once. Rows of memory have nothing fitted and are held
// out as they are.
Validation leave_one_model_out(const std::vector<PreparedRow>& rows, const FitOptions& options,
                               const Progress& progress);

// Constants of `from` for the chip `to`. Ratios are of each chip's own peaks, so data sheets do
// most of it. Sustained products are limited by power: at one energy per FLOP their rate goes with
// the board's power less what it draws idle (a fifth, bill.h), up to the best that a chip has been
// seen to reach of its peak (A100, unthrottled: 0.87; stas00/ml-engineering, compute/accelerator).
Constants transferred(const Constants& constants, const catalog::Chip& from,
                      const catalog::Chip& to);

// Fits on all rows of the chip `from`, predicts all rows of the chip `to` with the same software,
// or else the best set that `from` has; other rows are skipped with a reason. Throws usage when
// either has no row of time.
Validation transfer(const std::vector<PreparedRow>& rows, const catalog::Catalog& catalog,
                    const std::string& from, const std::string& to, const FitOptions& options,
                    const Progress& progress);

struct Ranking {  // of the layouts of one model, GPUs and batch
  std::string source;
  std::string model;
  int64_t gpus = 0;
  int64_t layouts = 0;
  int line = 0;                      // of the layout measured fastest
  int64_t predicted_place = 0;       // of it, from 1
  double predicted_first_ratio = 0;  // measured time of the one predicted fastest over the fastest
};
inline constexpr int64_t kRankedLayouts = 4;  // at least so many to be worth a ranking

// `validation` is of `rows`; only measured step times count.
std::vector<Ranking> rank_layouts(const std::vector<PreparedRow>& rows,
                                  const Validation& validation);

Json to_json(const std::vector<Ranking>& rankings);
std::string format_rankings(const std::vector<Ranking>& rankings);  // empty: nothing to rank

}  // namespace tutti::plan
