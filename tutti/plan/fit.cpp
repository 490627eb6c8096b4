#include "tutti/plan/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tutti/base/real.h"
#include "tutti/plan/least_squares.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::plan {
namespace {

// In units of a constant's range: what counts as at its bound, and where a fit starts then.
constexpr double kLeastShare = 1e-4;
constexpr double kInside = 0.05;
constexpr double kFarthest = 9;  // of a free variable from the middle of its range

// Marks the constants that the time of a row depends on, without those that its source states.
std::array<bool, kConstants> used_by(const PreparedRow& row) {
  std::array<bool, kConstants> out{};
  const Measurement& measurement = row.measurement();
  const spec::Recipe& recipe = measurement.recipe;
  // Any, for a layout that is searched.
  const bool open = !measurement.free.empty();
  const spec::Mesh& mesh = recipe.parallel;
  const bool four = recipe.precision == spec::Precision::fp4;
  const bool eight = spec::is_narrow(recipe.precision) && !four;
  const bool plain = measurement.profile.stores_attention_matrix;
  const bool several = mesh.world() > 1;
  const bool data = open || mesh.dp > 1 || mesh.cp > 1;
  const bool runs = measurement.metric == "run_minutes";
  const auto use = [&](bool when, Constant constant) {
    if (when && measurement.stated.count(constant) == 0) out[static_cast<size_t>(constant)] = true;
  };
  use(true, Constant::gemm_ratio);  // of the head in any precision
  use(eight, Constant::gemm_fp8_ratio);
  use(four, Constant::gemm_fp4_ratio);
  use(true, Constant::gemm_side_count);
  use(true, Constant::gemm_depth_count);
  use(!plain, Constant::attention_ratio);
  use(!plain, Constant::attention_backward_ratio);
  use(!plain, Constant::attention_fill_count);
  use(plain, Constant::batched_ratio);
  use(true, Constant::memory_ratio);
  use(true, Constant::launch_microseconds);
  use(true, Constant::host_microseconds);
  use(several, Constant::link_ratio);
  use(several, Constant::network_ratio);
  use(several, Constant::rail_ratio);
  use(several, Constant::collective_microseconds);
  use(open || mesh.tp > 1, Constant::tp_overlap_ratio);
  use(data, Constant::dp_overlap_ratio);
  use(open || mesh.pp > 1, Constant::pp_overlap_ratio);
  use(open || mesh.cp > 1, Constant::cp_overlap_ratio);
  use(mesh.ep > 1, Constant::ep_overlap_ratio);
  use(mesh.ep > 1, Constant::expert_imbalance_ratio);
  use(several, Constant::straggler_ratio);
  use(true, Constant::step_overhead_seconds);
  use(runs, Constant::run_start_seconds);
  use(runs, Constant::evaluation_start_seconds);
  return out;
}

// A bounded variable as an unbounded one and back. Variables at a bound start slightly inside,
// where they can still move; variables near a bound stay there unless the rows say otherwise.
double to_free(double value, const ConstantInfo& info) {
  double share = (value - info.least) / (info.most - info.least);
  if (share < kLeastShare) share = kInside;
  if (share > 1 - kLeastShare) share = 1 - kInside;
  return std::log(share / (1 - share));
}
double from_free(double value, const ConstantInfo& info) {
  return info.least + (info.most - info.least) / (1 + std::exp(-value));
}

double log_error(const PreparedRow& row, const Constants& constants) {
  return std::log(row.predict(constants) / row.measurement().value);
}

double mean_log_error(const std::vector<const PreparedRow*>& rows, const Constants& constants) {
  double sum = 0;
  for (const PreparedRow* row : rows) sum += std::abs(log_error(*row, constants));
  return sum / real(static_cast<int64_t>(rows.size()));
}

// Its square is |error| far above `turn` and approaches error^2 / (2 turn) far below it (Huber
// 1964, smoothed): large errors of rows count linearly, not quadratically.
double residual(double error, double turn) {
  const double x = error / turn;
  return error * std::sqrt(1 / (turn * (std::sqrt(1 + x * x) + 1)));
}

// The weight of each row in the total error: families are weighted by the square root of their
// rows.
std::vector<double> shares_of(const std::vector<const PreparedRow*>& rows) {
  std::map<std::string, int64_t> count;
  for (const PreparedRow* row : rows) ++count[software_family(row->measurement().software)];
  double all = 0;
  for (const auto& [family, members] : count) all += std::sqrt(real(members));
  std::vector<double> shares;
  for (const PreparedRow* row : rows) {
    const int64_t members = count.at(software_family(row->measurement().software));
    shares.push_back(1 / std::sqrt(real(members)) / all);
  }
  return shares;
}

using Members = std::vector<const PreparedRow*>;

Constants named(Constants set, const std::string& generation, const std::string& software) {
  set.name = generation + "/" + software;
  set.chip_generation = generation;
  set.software = software;
  return set;
}

}  // namespace

namespace {

// A free variable: a constant of all rows, or the offset of one family from it.
struct Variable {
  size_t constant = 0;
  size_t family = 0;  // 0: of all; f + 1: the offset of family f
};

// Constants that a single cause moves together: a chip whose power limits its 16-bit products
// limits those in 8 and 4 bits and attention's, too, and the passes of one kernel are similar. If
// rows determine one of a pair, the other follows half of the way.
constexpr std::pair<Constant, Constant> kAlike[] = {
    {Constant::gemm_ratio, Constant::gemm_fp8_ratio},
    {Constant::gemm_fp8_ratio, Constant::gemm_fp4_ratio},
    {Constant::gemm_ratio, Constant::attention_ratio},
    {Constant::attention_ratio, Constant::attention_backward_ratio},
};

struct Problem {
  std::vector<Variable> variables;
  std::vector<size_t> family;  // of each row
  size_t families = 0;
  std::vector<std::array<bool, kConstants>> used;  // by each row
};

Problem make_problem(const std::vector<const PreparedRow*>& rows, bool apart) {
  Problem out;
  std::map<std::string, size_t> numbers;
  for (const PreparedRow* row : rows) {
    out.used.push_back(used_by(*row));
    const std::string name = software_family(row->measurement().software);
    out.family.push_back(numbers.emplace(name, numbers.size()).first->second);
  }
  out.families = apart && numbers.size() > 1 ? numbers.size() : 0;
  for (size_t family = 0; family <= out.families; ++family) {
    for (size_t constant = 0; constant < kConstants; ++constant) {
      for (size_t i = 0; i < rows.size(); ++i) {
        if (!out.used[i][constant] || (family > 0 && out.family[i] + 1 != family)) continue;
        out.variables.push_back({constant, family});
        break;
      }
    }
  }
  return out;
}

// For all rows, then for each family.
std::vector<Constants> constants_at(const Problem& problem, const Constants& start,
                                    const std::vector<double>& point) {
  const auto& table = constant_table();
  std::array<double, kConstants> centre{};
  std::vector<Constants> out(problem.families + 1, start);
  for (size_t v = 0; v < point.size(); ++v) {
    const auto [constant, family] = problem.variables[v];
    if (family == 0) {
      centre[constant] = point[v];
      for (Constants& set : out) set.value[constant] = from_free(point[v], table[constant]);
    } else {
      out[family].value[constant] = from_free(centre[constant] + point[v], table[constant]);
    }
  }
  return out;
}

}  // namespace

Constants fit_constants(const std::vector<const PreparedRow*>& rows, const Constants& start,
                        const FitOptions& options) {
  const Problem problem = make_problem(rows, options.apart > 0);
  std::vector<double> anchor;
  std::vector<double> holds;  // square roots of penalties
  for (const Variable& variable : problem.variables) {
    const bool own = variable.family > 0;
    anchor.push_back(
        own ? 0 : to_free(start.value[variable.constant], constant_table()[variable.constant]));
    holds.push_back(std::sqrt(own ? options.apart : options.pull));
  }
  std::vector<std::pair<size_t, size_t>> pairs;  // of variables of all families
  const auto index_of = [&](Constant constant) {
    const auto found = std::find_if(
        problem.variables.begin(), problem.variables.end(), [&](const Variable& variable) {
          return variable.family == 0 && variable.constant == static_cast<size_t>(constant);
        });
    return static_cast<size_t>(found - problem.variables.begin());
  };
  for (const auto& [a, b] : kAlike) {
    const std::pair<size_t, size_t> pair = {index_of(a), index_of(b)};
    if (std::max(pair.first, pair.second) < problem.variables.size()) pairs.push_back(pair);
  }
  const std::vector<double> shares = shares_of(rows);
  // Derivatives change one variable at a time: rows that do not depend on it are unchanged, and a
  // family's offset changes its rows as the common constant does, which comes before it.
  std::vector<double> before;
  std::vector<double> errors(rows.size());
  std::vector<std::vector<double>> slopes(kConstants);  // of errors, by the common constants
  const auto depends = [&](size_t row, const Variable& variable) {
    return problem.used[row][variable.constant] &&
           (variable.family == 0 || variable.family == problem.family[row] + 1);
  };
  const auto residuals = [&](const std::vector<double>& point) {
    const std::vector<Constants> sets = constants_at(problem, start, point);
    std::vector<size_t> moved;
    for (size_t i = 0; i < before.size(); ++i) {
      if (point[i] != before[i]) moved.push_back(i);
    }
    const bool one = !before.empty() && moved.size() == 1;
    const Variable* only = one ? &problem.variables[moved.front()] : nullptr;
    const double step = one ? point[moved.front()] - before[moved.front()] : 0;
    std::vector<double>* slope = one ? &slopes[only->constant] : nullptr;
    const bool known = one && only->family > 0 && !slope->empty();
    std::vector<double> out;
    out.reserve(rows.size() + point.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      double error = errors[i];
      if (known && depends(i, *only)) {
        error += step * (*slope)[i];
      } else if (!one || depends(i, *only)) {
        error = log_error(*rows[i], sets[problem.families > 0 ? problem.family[i] + 1 : 0]);
      }
      if (one && only->family == 0) {
        slope->resize(rows.size());
        (*slope)[i] = (error - errors[i]) / step;
      }
      if (!one) errors[i] = error;
      out.push_back(std::sqrt(shares[i]) * residual(error, options.turn));
    }
    if (!one) {
      before = point;
      for (std::vector<double>& each : slopes) each.clear();
    }
    for (size_t i = 0; i < point.size(); ++i) out.push_back(holds[i] * (point[i] - anchor[i]));
    for (const auto& [one_of, other] : pairs) {
      out.push_back(2 * holds[one_of] *
                    (point[one_of] - anchor[one_of] - point[other] + anchor[other]));
    }
    return out;
  };
  const std::vector<double> least(anchor.size(), -kFarthest);
  const std::vector<double> most(anchor.size(), kFarthest);
  Constants best = constants_at(problem, start,
                                fit_least_squares(residuals, anchor, least, most, options.rounds))
                       .front();
  for (const Variable& variable : problem.variables) {
    if (variable.family == 0) best.origin[variable.constant] = Origin::fitted;
  }
  std::vector<const catalog::Chip*> chips;
  chips.reserve(rows.size());
  for (const PreparedRow* row : rows) chips.push_back(&row->system().chip);
  best.limits = mean_limits(chips);
  return best;
}

std::vector<Constants> fit_pooled(const std::vector<const PreparedRow*>& rows,
                                  const FitOptions& options, const std::set<std::string>& wanted) {
  std::vector<Constants> sets;
  if (rows.empty()) return sets;
  std::map<std::string, Members> generations;
  for (const PreparedRow* row : rows) generations[row->system().chip.generation].push_back(row);
  FitOptions apart = options;
  apart.apart = options.family_apart;
  const Constants all = named(fit_constants(rows, assumed_constants(), apart), kAny, kAny);
  for (const auto& [generation, members] : generations) {
    if (!wanted.empty() && wanted.count(generation) == 0) continue;
    FitOptions near = apart;
    near.pull += options.family_pull / real(static_cast<int64_t>(members.size()));
    sets.push_back(named(fit_constants(members, all, near), generation, kAny));
  }
  sets.push_back(all);
  return sets;
}

std::vector<Constants> fit_groups(const std::vector<PreparedRow>& rows,
                                  const std::vector<bool>& fitted, const FitOptions& options,
                                  std::vector<FitReport>* reports,
                                  const std::function<void(int64_t, int64_t)>& progress,
                                  const std::set<std::string>& wanted) {
  std::map<std::string, Members> groups;
  std::map<std::string, Members> families;
  std::set<std::string> wanted_families;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].predictable() || !fitted[i] || rows[i].is_memory()) continue;
    const std::string family = software_family(rows[i].measurement().software);
    families[family].push_back(&rows[i]);
    if (!wanted.empty() && wanted.count(rows[i].group()) == 0) continue;
    groups[rows[i].group()].push_back(&rows[i]);
    wanted_families.insert(family);
  }
  std::erase_if(families, [&](const auto& family) { return !wanted_families.count(family.first); });
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
    Constants start = pooled.at(software_family(software));
    for (const auto& [constant, value] : members.front()->measurement().stated) {
      start[constant] = value;
      start.origin[static_cast<size_t>(constant)] = Origin::fitted;
    }
    FitOptions near = options;
    near.pull += options.family_pull / real(static_cast<int64_t>(members.size()));
    Constants set = named(fit_constants(members, start, near),
                          members.front()->system().chip.generation, software);
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
