// Text and JSON of left_out.h.
#include <fmt/format.h>

#include <cmath>

#include "tutti/base/text.h"
#include "tutti/plan/left_out.h"

namespace tutti::plan {

Json to_json(const ReleaseSpread& spread) {
  return {{"pairs", spread.pairs}, {"mean", spread.mean}, {"worst", spread.worst}};
}

std::string format_releases(const ReleaseSpread& spread) {
  if (spread.pairs == 0) return "no layout was measured with two releases of one software\n";
  return fmt::format(
      "{} pairs of releases of one software on one layout differ by {:.1f}% on average, {:.1f}% at "
      "most: a prediction that ignores the release has at least half of that error\n",
      spread.pairs, 100 * std::expm1(spread.mean), 100 * std::expm1(spread.worst));
}

Json to_json(const LeftOut& left_out) {
  Json folds = Json::array();
  for (const LeftOutSummary& fold : left_out.summary) {
    folds.push_back({{"left_out", fold.name},
                     {"rows", fold.rows},
                     {"mean_error", fold.mean_error},
                     {"bias", fold.bias},
                     {"inside_80", fold.inside},
                     {"anchored_mean_error", fold.anchored.mean_error},
                     {"anchored_bias", fold.anchored.bias},
                     {"anchored_inside_80", fold.anchored.inside},
                     {"nearest_mean_error", fold.nearest.mean_error},
                     {"nearest_bias", fold.nearest.bias},
                     {"nearest_inside_80", fold.nearest.inside}});
  }
  return {{"folds", std::move(folds)},
          {"interval_80", left_out.interval},
          {"rest_error_ratio", left_out.rest_ratio},
          {"anchored_interval_80", left_out.anchored_interval},
          {"nearest_interval_80", left_out.nearest_interval},
          {"spread",
           {{"family", left_out.spread.family},
            {"alike", left_out.spread.alike},
            {"own", left_out.spread.own}}}};
}

std::string format_left_out(const LeftOut& left_out) {
  std::vector<std::vector<std::string>> cells = {
      {"left out", "rows", "mean error", "bias", "in 80%", "any anchor: mean error", "bias",
       "in 80%", "nearest: mean error", "bias", "in 80%"}};
  const auto percent = [](double value) { return fmt::format("{:.1f}%", 100 * value); };
  for (const LeftOutSummary& fold : left_out.summary) {
    cells.push_back({fold.name, fmt::format("{}", fold.rows), percent(fold.mean_error),
                     fmt::format("{:+.1f}%", 100 * fold.bias), percent(fold.inside)});
    for (const AnchoredSummary& anchored : {fold.anchored, fold.nearest}) {
      cells.back().push_back(percent(anchored.mean_error));
      cells.back().push_back(fmt::format("{:+.1f}%", 100 * anchored.bias));
      cells.back().push_back(percent(anchored.inside));
    }
  }
  return format_table(cells);
}

}  // namespace tutti::plan
