#include "tutti/plan/protocols.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/plan/in_parallel.h"

namespace tutti::plan {
namespace {

constexpr double kIdleShare = 0.2;  // of a board's power (bill.h)
constexpr double kBestProductRatio = 0.87;

bool is_time(const PreparedRow& row) { return row.predictable() && !row.is_memory(); }

const Constants* set_of(const std::vector<Constants>& sets, const std::string& name) {
  const auto found = std::find_if(sets.begin(), sets.end(),
                                  [&](const Constants& set) { return set.name == name; });
  return found == sets.end() ? nullptr : &*found;
}

}  // namespace

Validation leave_one_model_out(const std::vector<PreparedRow>& rows, const FitOptions& options,
                               const Progress& progress) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> models;  // group, model
  Validation out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (is_time(rows[i])) {
      models[{rows[i].group(), rows[i].measurement().model}].push_back(i);
    }
    // Replaced below if constants matter.
    out.rows.push_back(is_time(rows[i]) ? ValidatedRow{}
                                        : validate_row(rows[i], assumed_constants(), false));
  }
  const std::vector<std::pair<std::pair<std::string, std::string>, std::vector<size_t>>> list(
      models.begin(), models.end());
  const auto predict = [&](size_t m) {
    const auto& [key, left_out] = list[m];
    // The group's other models.
    std::vector<bool> fitted;
    bool others = false;
    for (const PreparedRow& row : rows) {
      const bool fits = is_time(row) && row.measurement().model != key.second;
      fitted.push_back(fits && row.group() == key.first);
      others = others || fitted.back();
    }
    Constants constants = assumed_constants();
    if (others)
      constants = fit_groups(rows, fitted, options, nullptr, [](int64_t, int64_t) {}).front();
    for (const size_t i : left_out) out.rows[i] = validate_row(rows[i], constants, false);
  };
  in_parallel(list.size(), options.threads, predict, [&](size_t finished) {
    progress(static_cast<int64_t>(finished), static_cast<int64_t>(list.size()));
  });
  out.summary = summarize(out.rows);
  return out;
}

Constants transferred(const Constants& constants, const catalog::Chip& from,
                      const catalog::Chip& to) {
  Constants out = constants;
  out.chip_generation = to.generation;
  out.error = 0;
  if (from.board_watts <= 0 || to.board_watts <= 0) return out;
  const double power =
      (to.board_watts - kIdleShare * from.board_watts) / (from.board_watts * (1 - kIdleShare));
  const auto limit = [&](Constant constant, double from_peak, double to_peak) {
    if (from_peak <= 0 || to_peak <= 0) return;
    const double scaled = constants[constant] * from_peak / to_peak * power;
    out[constant] = std::min(scaled, std::max(kBestProductRatio, constants[constant]));
  };
  limit(Constant::gemm_ratio, from.bf16_flops, to.bf16_flops);
  limit(Constant::gemm_fp8_ratio, from.fp8_flops, to.fp8_flops);
  limit(Constant::attention_ratio, from.bf16_flops, to.bf16_flops);
  limit(Constant::attention_backward_ratio, from.bf16_flops, to.bf16_flops);
  return out;
}

Validation transfer(const std::vector<PreparedRow>& rows, const catalog::Catalog& catalog,
                    const std::string& from, const std::string& to, const FitOptions& options,
                    const Progress& progress) {
  const catalog::Chip& source = catalog.chip(from);
  const catalog::Chip& target = catalog.chip(to);
  std::vector<bool> fitted;
  int64_t sources = 0;
  int64_t targets = 0;
  for (const PreparedRow& row : rows) {
    const bool time = is_time(row);
    fitted.push_back(time && row.system().chip.name == source.name);
    sources += fitted.back() ? 1 : 0;
    targets += time && row.system().chip.name == target.name ? 1 : 0;
  }
  if (sources == 0 || targets == 0) {
    fail(ErrorKind::usage, "--transfer: {} rows of time on {} and {} on {}; both chips need some",
         sources, source.name, targets, target.name);
  }
  const std::vector<Constants> sets = fit_groups(rows, fitted, options, nullptr, progress);
  Validation out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PreparedRow& row = rows[i];
    const bool wanted = is_time(row) && row.system().chip.name == target.name;
    const Constants* set = nullptr;
    if (wanted) set = set_of(sets, source.generation + "/" + row.measurement().software);
    if (set != nullptr) {
      out.rows.push_back(validate_row(row, transferred(*set, source, target), false));
    } else if (fitted[i]) {
      const Constants* own = set_of(sets, row.group());
      out.rows.push_back(validate_row(row, own != nullptr ? *own : assumed_constants(), true));
    } else {
      ValidatedRow skipped = validate_row(row, assumed_constants(), false);
      if (skipped.skipped.empty()) {
        skipped.skipped =
            wanted ? fmt::format("no row of {} on {}", row.measurement().software, source.name)
                   : fmt::format("not on {} or {}", source.name, target.name);
      }
      out.rows.push_back(std::move(skipped));
    }
  }
  out.summary = summarize(out.rows);
  return out;
}

std::vector<Ranking> rank_layouts(const std::vector<PreparedRow>& rows,
                                  const Validation& validation) {
  std::map<std::string, std::vector<size_t>> candidates;
  std::vector<std::string> order;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Measurement& row = rows[i].measurement();
    if (!rows[i].predictable() || row.metric != "iter_time_s") continue;
    const std::string key = fmt::format("{}|{}|{}|{}|{}|{}", row.source, row.model, row.system,
                                        row.recipe.parallel.world(), row.recipe.batch.global,
                                        row.recipe.batch.sequence);
    if (candidates.count(key) == 0) order.push_back(key);
    candidates[key].push_back(i);
  }
  std::vector<Ranking> out;
  for (const std::string& key : order) {
    const std::vector<size_t>& layouts = candidates.at(key);
    std::set<std::string> distinct;
    for (const size_t i : layouts) distinct.insert(rows[i].layout());
    if (static_cast<int64_t>(distinct.size()) < kRankedLayouts) continue;
    const auto less = [&](double ValidatedRow::*value) {
      return [&, value](size_t a, size_t b) {
        return validation.rows[a].*value < validation.rows[b].*value;
      };
    };
    const size_t fastest =
        *std::min_element(layouts.begin(), layouts.end(), less(&ValidatedRow::measured));
    const size_t first =
        *std::min_element(layouts.begin(), layouts.end(), less(&ValidatedRow::predicted));
    const Measurement& best = rows[fastest].measurement();
    Ranking ranking;
    ranking.source = best.source;
    ranking.model = best.model;
    ranking.gpus = best.recipe.parallel.world();
    ranking.layouts = static_cast<int64_t>(layouts.size());
    ranking.line = best.line;
    ranking.predicted_rank =
        1 + std::count_if(layouts.begin(), layouts.end(), [&](size_t i) {
          return validation.rows[i].predicted < validation.rows[fastest].predicted;
        });
    ranking.predicted_first_ratio =
        validation.rows[first].measured / validation.rows[fastest].measured;
    out.push_back(std::move(ranking));
  }
  return out;
}

Json to_json(const std::vector<Ranking>& rankings) {
  Json list = Json::array();
  for (const Ranking& ranking : rankings) {
    list.push_back({{"source", ranking.source},
                    {"model", ranking.model},
                    {"gpus", ranking.gpus},
                    {"layouts", ranking.layouts},
                    {"measured_best_line", ranking.line},
                    {"predicted_place", ranking.predicted_rank},
                    {"in_first_three", ranking.predicted_rank <= 3},
                    {"predicted_first_ratio", ranking.predicted_first_ratio}});
  }
  return list;
}

std::string format_rankings(const std::vector<Ranking>& rankings) {
  if (rankings.empty()) return {};
  std::vector<std::vector<std::string>> cells = {
      {"layouts of", "GPUs", "layouts", "predicted rank of the fastest",
       "time of the predicted fastest, over the fastest"}};
  for (const Ranking& ranking : rankings) {
    cells.push_back({ranking.model, fmt::format("{}", ranking.gpus),
                     fmt::format("{}", ranking.layouts), fmt::format("{}", ranking.predicted_rank),
                     fmt::format("{:.3f}", ranking.predicted_first_ratio)});
  }
  return format_table(cells);
}

}  // namespace tutti::plan
