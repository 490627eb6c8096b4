#include "tutti/plan/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tutti/spec/narrow.h"

namespace tutti::plan {
namespace {

// Of a constant's range: what counts as at its bound, and where a fit starts then.
constexpr double kLeastShare = 1e-4;
constexpr double kInside = 0.05;

// Constants that step times can tell something about.
std::vector<size_t> fitted_indices(const std::vector<const PreparedRow*>& rows) {
  const auto stated = [&](Constant constant) {
    return std::any_of(rows.begin(), rows.end(), [&](const PreparedRow* row) {
      return row->measurement().stated.count(constant) > 0;
    });
  };
  bool tensor = false, context = false, expert = false, pipeline = false, data = false,
       eight = false, four = false, sixteen = false, fused = false, plain = false, many = false,
       runs = false;
  for (const PreparedRow* row : rows) {
    const spec::Recipe& recipe = row->measurement().recipe;
    const spec::Mesh& mesh = recipe.parallel;
    tensor = tensor || mesh.tp > 1;
    context = context || mesh.cp > 1;
    expert = expert || mesh.ep > 1;
    pipeline = pipeline || mesh.pp > 1;
    data = data || mesh.dp > 1;
    many = many || mesh.world() > 64;
    runs = runs || row->measurement().metric == "run_minutes";
    const bool block_scaled_four = recipe.precision == spec::Precision::fp4;
    four = four || block_scaled_four;
    eight = eight || (spec::is_narrow(recipe.precision) && !block_scaled_four);
    sixteen = sixteen || !spec::is_narrow(recipe.precision);
    plain = plain || row->measurement().profile.stores_attention_matrix;
    fused = fused || !row->measurement().profile.stores_attention_matrix;
  }
  std::vector<size_t> out;
  const auto use = [&](bool when, Constant constant) {
    if (when && !stated(constant)) out.push_back(static_cast<size_t>(constant));
  };
  use(sixteen, Constant::gemm_ratio);
  use(eight, Constant::gemm_fp8_ratio);
  use(four, Constant::gemm_fp4_ratio);
  use(true, Constant::gemm_side_count);
  use(true, Constant::gemm_depth_count);
  use(fused, Constant::attention_ratio);
  use(fused, Constant::attention_backward_ratio);
  use(fused, Constant::attention_fill_count);
  use(plain, Constant::batched_ratio);
  use(true, Constant::memory_ratio);
  use(true, Constant::launch_microseconds);
  use(true, Constant::host_microseconds);
  use(tensor || context || expert, Constant::link_ratio);
  use(data || pipeline, Constant::network_ratio);
  use(data && tensor, Constant::rail_ratio);
  use(tensor || context || expert, Constant::collective_microseconds);
  use(tensor, Constant::tp_overlap_ratio);
  use(data, Constant::dp_overlap_ratio);
  use(pipeline, Constant::pp_overlap_ratio);
  use(context, Constant::cp_overlap_ratio);
  use(expert, Constant::ep_overlap_ratio);
  use(expert, Constant::expert_imbalance_ratio);
  use(many, Constant::straggler_ratio);
  use(true, Constant::step_overhead_seconds);
  use(runs, Constant::run_start_seconds);
  use(runs, Constant::evaluation_start_seconds);
  return out;
}

// A bounded variable as an unbounded one and back. What starts at a bound starts a little inside,
// where it can still move; what starts near one stays there unless the rows say otherwise.
double to_free(double value, const ConstantInfo& info) {
  double share = (value - info.least) / (info.most - info.least);
  if (share < kLeastShare) share = kInside;
  if (share > 1 - kLeastShare) share = 1 - kInside;
  return std::log(share / (1 - share));
}
double from_free(double value, const ConstantInfo& info) {
  return info.least + (info.most - info.least) / (1 + std::exp(-value));
}

using Point = std::vector<double>;

// Minimises `f` from `start` with a simplex of the given first step; returns the best point.
Point nelder_mead(const std::function<double(const Point&)>& f, const Point& start, double step,
                  int evaluations) {
  const size_t n = start.size();
  std::vector<std::pair<double, Point>> simplex = {{f(start), start}};
  for (size_t i = 0; i < n; ++i) {
    Point point = start;
    point[i] += step;
    simplex.emplace_back(f(point), point);
  }
  int used = static_cast<int>(n) + 1;
  const auto by_value = [](const auto& a, const auto& b) { return a.first < b.first; };
  while (used < evaluations) {
    std::sort(simplex.begin(), simplex.end(), by_value);
    if (simplex.back().first - simplex.front().first < 1e-9) break;
    Point centre(n, 0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t d = 0; d < n; ++d) centre[d] += simplex[i].second[d] / static_cast<double>(n);
    }
    const auto along = [&](double factor) {
      Point point(n);
      for (size_t d = 0; d < n; ++d) {
        point[d] = centre[d] + factor * (simplex.back().second[d] - centre[d]);
      }
      ++used;
      const double value = f(point);
      return std::make_pair(value, std::move(point));
    };
    auto reflected = along(-1);
    if (reflected.first < simplex.front().first) {
      auto further = along(-2);
      simplex.back() = further.first < reflected.first ? std::move(further) : std::move(reflected);
    } else if (reflected.first < simplex[n - 1].first) {
      simplex.back() = std::move(reflected);
    } else {
      auto nearer = along(reflected.first < simplex.back().first ? -0.5 : 0.5);
      if (nearer.first < std::min(reflected.first, simplex.back().first)) {
        simplex.back() = std::move(nearer);
      } else {
        for (size_t i = 1; i <= n; ++i) {
          for (size_t d = 0; d < n; ++d) {
            simplex[i].second[d] = (simplex[i].second[d] + simplex[0].second[d]) / 2;
          }
          simplex[i].first = f(simplex[i].second);
          ++used;
        }
      }
    }
  }
  return std::min_element(simplex.begin(), simplex.end(), by_value)->second;
}

double mean_log_error(const std::vector<const PreparedRow*>& rows, const Constants& constants) {
  double sum = 0;
  for (const PreparedRow* row : rows) {
    sum += std::abs(std::log(row->predict(constants) / row->measurement().value));
  }
  return sum / static_cast<double>(rows.size());
}

// "bridge" of "bridge-25.11": versions of one program.
std::string family_of(const std::string& software) {
  return software.substr(0, software.find('-'));
}

}  // namespace

Constants fit_constants(const std::vector<const PreparedRow*>& rows, const Constants& start,
                        const FitOptions& options) {
  const std::vector<size_t> indices = fitted_indices(rows);
  const auto& table = constant_table();
  Constants best = start;
  const auto constants_at = [&](const Point& point) {
    Constants constants = start;
    for (size_t i = 0; i < indices.size(); ++i) {
      constants.value[indices[i]] = from_free(point[i], table[indices[i]]);
    }
    return constants;
  };
  Point anchor;
  for (const size_t index : indices) anchor.push_back(to_free(start.value[index], table[index]));
  const auto objective = [&](const Point& point) {
    double pull = 0;
    for (size_t i = 0; i < point.size(); ++i) {
      pull += (point[i] - anchor[i]) * (point[i] - anchor[i]);
    }
    return mean_log_error(rows, constants_at(point)) + options.pull * pull;
  };
  Point at = anchor;
  for (int round = 0; round < options.rounds; ++round) {
    at = nelder_mead(objective, at, round % 2 == 0 ? 0.8 : -0.4, options.evaluations);
  }
  best = constants_at(at);
  for (const size_t index : indices) best.origin[index] = Origin::fitted;
  return best;
}

std::vector<Constants> fit_groups(const std::vector<PreparedRow>& rows,
                                  const std::vector<bool>& fitted, const FitOptions& options,
                                  std::vector<FitReport>* reports,
                                  const std::function<void(int64_t, int64_t)>& progress) {
  using Members = std::vector<const PreparedRow*>;
  std::map<std::string, Members> groups;
  std::map<std::string, Members> families;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].predictable() || !fitted[i] || rows[i].is_memory()) continue;
    groups[rows[i].group()].push_back(&rows[i]);
    families[family_of(rows[i].measurement().software)].push_back(&rows[i]);
  }
  const auto steps = static_cast<int64_t>(families.size() + groups.size());
  int64_t done = 0;
  std::map<std::string, Constants> pooled;
  for (const auto& [name, members] : families) {
    pooled[name] = fit_constants(members, assumed_constants(), options);
    progress(++done, steps);
  }
  std::vector<Constants> sets;
  for (const auto& [name, members] : groups) {
    const std::string& software = members.front()->measurement().software;
    Constants start = pooled.at(family_of(software));
    for (const auto& [constant, value] : members.front()->measurement().stated) {
      start[constant] = value;
      start.origin[static_cast<size_t>(constant)] = Origin::fitted;
    }
    FitOptions near = options;
    near.pull += options.family_pull / static_cast<double>(members.size());
    Constants set = fit_constants(members, start, near);
    set.name = name;
    set.chip_generation = members.front()->system().chip.generation;
    set.software = software;
    if (reports != nullptr) {
      reports->push_back({name, static_cast<int64_t>(members.size()),
                          mean_log_error(members, assumed_constants()),
                          mean_log_error(members, set)});
    }
    sets.push_back(std::move(set));
    progress(++done, steps);
  }
  return sets;
}

}  // namespace tutti::plan
