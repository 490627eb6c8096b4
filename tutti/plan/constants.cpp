#include "tutti/plan/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/catalog/known_quantities.h"

namespace tutti::plan {

const std::array<ConstantInfo, kConstants>& constant_table() {
  static const std::array<ConstantInfo, kConstants> table = {{
      {"gemm_ratio", 0.80, 0.3, 1.0},
      {"gemm_fp8_ratio", 0.70, 0.2, 1.0},
      {"gemm_fp4_ratio", 0.50, 0.1, 1.0},
      {"gemm_side_count", 128, 0, 2000},
      {"gemm_depth_count", 128, 0, 2000},
      {"attention_ratio", 0.55, 0.05, 1.0},
      {"attention_backward_ratio", 0.45, 0.05, 1.0},
      {"attention_fill_count", 20000, 0, 300000},
      {"batched_ratio", 0.45, 0.02, 1.0},
      {"memory_ratio", 0.85, 0.2, 1.0},
      {"launch_microseconds", 4, 0, 40},
      {"host_microseconds", 40, 0, 200},
      {"link_ratio", 0.80, 0.1, 1.1},
      {"network_ratio", 0.80, 0.05, 1.0},
      {"rail_ratio", 0.5, 0, 1.0},
      {"node_rail_ratio", 1, 0, 1.0},
      {"collective_microseconds", 10, 0, 200},
      {"tp_overlap_ratio", 0.4, 0, 1.0},
      {"dp_overlap_ratio", 0.8, 0, 1.0},
      {"pp_overlap_ratio", 0.5, 0, 1.0},
      {"cp_overlap_ratio", 0.5, 0, 1.0},
      {"ep_overlap_ratio", 0, 0, 1.0},
      {"expert_imbalance_ratio", 1.0, 1.0, 3.0},
      {"straggler_ratio", 0.06, 0, 0.3},
      {"step_overhead_seconds", 0.01, 0, 2.0},
      {"run_start_seconds", 5, 0, 60},
      {"evaluation_start_seconds", 0.5, 0, 10},
      {"process_gigabytes", 0, 0, 16},
      {"memory_reserve_ratio", 1.04, 1.0, 1.3},
  }};
  return table;
}

const char* nearness_text(Nearness nearness) {
  switch (nearness) {
    case Nearness::exact: return "rows of this software on this chip generation";
    case Nearness::release: return "rows of another release of this software";
    case Nearness::family: return "rows of this software on another chip generation";
    case Nearness::generation: return "rows of other software on this chip generation";
    case Nearness::pooled: return "rows of other software on other chip generations";
    case Nearness::assumed: return "no rows: assumed";
  }
  return "?";
}

std::string software_family(const std::string& software) {
  return software.substr(0, software.find('-'));
}

std::string operation_ratio_name(const std::string& operation) {
  return "operation_" + operation + "_ratio";
}

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::assumed: return "assumed";
    case Origin::fitted: return "fitted";
    case Origin::measured: return "measured";
  }
  return "?";
}

Constants assumed_constants() {
  Constants constants;
  for (size_t i = 0; i < kConstants; ++i) constants.value[i] = constant_table()[i].assumed;
  return constants;
}

namespace {

// Limited to the chip's measured ratios.
void limit_to_chip(const catalog::Chip& chip, Constants& constants) {
  const double before = constants[Constant::gemm_ratio];
  const auto limit = [&](Constant constant, double measured) {
    if (measured > 0) constants[constant] = std::min(constants[constant], measured);
  };
  limit(Constant::gemm_ratio, chip.best_product_ratio);
  limit(Constant::gemm_fp8_ratio,
        chip.best_fp8_product_ratio > 0 ? chip.best_fp8_product_ratio : chip.best_product_ratio);
  const double share = constants[Constant::gemm_ratio] / before;
  constants[Constant::attention_ratio] *= share;
  constants[Constant::attention_backward_ratio] *= share;
}

// Scaled by the chip's measured ratios over those of the chips that `constants` were fitted on.
void carry_to_chip(const catalog::Chip& chip, Constants& constants) {
  const ChipLimits to = limits_of(chip);
  const ChipLimits from = constants.limits;
  if (from.product <= 0 || to.product <= 0) return limit_to_chip(chip, constants);
  const auto set = [&](Constant constant, double value) {
    const ConstantInfo& info = constant_table()[static_cast<size_t>(constant)];
    constants[constant] = std::clamp(value, info.least, info.most);
  };
  set(Constant::gemm_ratio,
      carried_product_ratio(constants[Constant::gemm_ratio], from.product, to.product));
  if (from.fp8_product > 0 && to.fp8_product > 0) {
    const double before = constants[Constant::gemm_fp8_ratio];
    const double after = carried_product_ratio(before, from.fp8_product, to.fp8_product);
    set(Constant::gemm_fp8_ratio, after);
    // No best ratio of 4-bit products has been published.
    set(Constant::gemm_fp4_ratio, constants[Constant::gemm_fp4_ratio] * after / before);
  } else if (to.fp8_product > 0) {
    set(Constant::gemm_fp8_ratio, std::min(constants[Constant::gemm_fp8_ratio], to.fp8_product));
  }
  set(Constant::attention_ratio,
      constants[Constant::attention_ratio] * attention_gain(from, to, false));
  set(Constant::attention_backward_ratio,
      constants[Constant::attention_backward_ratio] * attention_gain(from, to, true));
}

// The number of a release, "25.11" of "bridge-25.11"; 0: none.
double release_of(const std::string& software) {
  const size_t dash = software.rfind('-');
  return dash == std::string::npos ? 0 : std::strtod(software.c_str() + dash + 1, nullptr);
}

}  // namespace

void cap_products(const catalog::Chip& chip, Constants& constants) {
  constexpr double kEndless = 1.05;
  const auto cap = [&](Constant constant, double best) {
    if (best > 0) constants[constant] = std::min(constants[constant], kEndless * best);
  };
  cap(Constant::gemm_ratio, chip.best_product_ratio);
  cap(Constant::gemm_fp8_ratio, chip.best_fp8_product_ratio);
}

Constants assumed_constants(const catalog::Chip& chip) {
  Constants constants = assumed_constants();
  limit_to_chip(chip, constants);
  constants.nearness = Nearness::assumed;
  constants.interval = kAssumedInterval;
  return constants;
}

Constants constants_from(const catalog::Entry& entry) {
  std::vector<std::string> known = {
      "held_out_error_ratio",       "interval_80_ratio",   "far_interval_80_ratio",
      "anchored_interval_80_ratio", "rest_error_ratio",    "spread_family_ratio",
      "spread_alike_ratio",         "spread_own_ratio",    "fitted_product_ratio",
      "fitted_fp8_product_ratio",   "fitted_softmax_ratio"};
  for (const ConstantInfo& info : constant_table()) known.emplace_back(info.name);
  const std::string ours = operation_ratio_name("");
  const size_t prefix = ours.find("_ratio");  // with one of its underscores
  std::vector<std::pair<std::string, double>> ratios;
  for (const auto& [name, quantity] : entry.quantities) {
    if (!starts_with(name, ours.substr(0, prefix)) || !ends_with(name, "_ratio")) continue;
    known.push_back(name);
    if (quantity.value < kLeastOperationRatio || quantity.value > kMostOperationRatio) {
      fail(ErrorKind::usage, "{}: quantities.{}: {} is out of range; accepted: {} to {}",
           entry.origin, name, quantity.value, kLeastOperationRatio, kMostOperationRatio);
    }
    ratios.emplace_back(name.substr(prefix, name.size() - ours.size()), quantity.value);
  }
  catalog::check_quantities(entry, known);
  Constants constants = assumed_constants();
  constants.name = entry.name;
  constants.chip_generation = entry.text("generation");
  constants.software = entry.text("software");
  constants.operation_ratios = std::move(ratios);
  constants.error = entry.number_or("held_out_error_ratio", 0);
  constants.interval = entry.number_or("interval_80_ratio", 0);
  constants.far_interval = entry.number_or("far_interval_80_ratio", 0);
  constants.anchored_interval = entry.number_or("anchored_interval_80_ratio", 0);
  constants.rest_ratio = entry.number_or("rest_error_ratio", 0);
  constants.limits = {entry.number_or("fitted_product_ratio", 0),
                      entry.number_or("fitted_fp8_product_ratio", 0),
                      entry.number_or("fitted_softmax_ratio", 0)};
  constants.spread = {entry.number_or("spread_family_ratio", 0),
                      entry.number_or("spread_alike_ratio", 0),
                      entry.number_or("spread_own_ratio", 0)};
  const Origin origin =
      entry.text_or("origin", "fitted") == "measured" ? Origin::measured : Origin::fitted;
  for (size_t i = 0; i < kConstants; ++i) {
    const ConstantInfo& info = constant_table()[i];
    if (entry.quantities.count(info.name) == 0) continue;
    const double value = entry.number(info.name);
    if (value < info.least || value > info.most) {
      fail(ErrorKind::usage, "{}: quantities.{}: {} is out of range; accepted: {} to {}",
           entry.origin, info.name, value, info.least, info.most);
    }
    constants.value[i] = value;
    constants.origin[i] = origin;
  }
  return constants;
}

std::string to_yaml(const Constants& constants, const std::string& source,
                    const std::string& date) {
  bool measured = false;
  std::string quantities;
  for (size_t i = 0; i < kConstants; ++i) {
    if (constants.origin[i] == Origin::assumed) continue;
    measured = measured || constants.origin[i] == Origin::measured;
    quantities += fmt::format("  {}: {:.6g}\n", constant_table()[i].name, constants.value[i]);
  }
  for (const auto& [name, ratio] : constants.operation_ratios) {
    quantities += fmt::format("  {}: {:.6g}\n", operation_ratio_name(name), ratio);
  }
  if (constants.error > 0) {
    quantities += fmt::format("  held_out_error_ratio: {:.4g}\n", constants.error);
  }
  const auto add = [&](const char* name, double value) {
    if (value > 0) quantities += fmt::format("  {}: {:.4g}\n", name, value);
  };
  add("interval_80_ratio", constants.interval);
  add("far_interval_80_ratio", constants.far_interval);
  add("anchored_interval_80_ratio", constants.anchored_interval);
  add("rest_error_ratio", constants.rest_ratio);
  add("spread_family_ratio", constants.spread.family);
  add("spread_alike_ratio", constants.spread.alike);
  add("spread_own_ratio", constants.spread.own);
  add("fitted_product_ratio", constants.limits.product);
  add("fitted_fp8_product_ratio", constants.limits.fp8_product);
  add("fitted_softmax_ratio", constants.limits.softmax);
  return fmt::format(
      "kind: constants\nname: {}\nsource: {{text: {}, date: {}}}\ntexts:\n  generation: {}\n"
      "  software: {}\n  origin: {}\nquantities:\n{}",
      constants.name, dump_json(Json(source)), date, constants.chip_generation, constants.software,
      measured ? "measured" : "fitted", quantities);
}

std::vector<Constants> load_constants(FileSystem& files, const std::vector<std::string>& folders) {
  std::vector<Constants> sets;
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, "constants");
    if (!files.is_directory(path)) continue;
    for (const DirectoryEntry& file : files.list(path)) {
      if (file.is_directory || !ends_with(file.name, ".yaml")) continue;
      Constants set = constants_from(catalog::load_entry(files, join_path(path, file.name)));
      const auto same = std::find_if(
          sets.begin(), sets.end(), [&](const Constants& other) { return other.name == set.name; });
      if (same != sets.end()) {
        *same = std::move(set);
      } else {
        sets.push_back(std::move(set));
      }
    }
  }
  return sets;
}

const Constants* find_constants(const std::vector<Constants>& sets,
                                const std::string& chip_generation, const std::string& software,
                                Nearness* nearness) {
  const Constants* best = nullptr;
  Nearness best_nearness = Nearness::assumed;
  double best_distance = 0;
  const double release = release_of(software);
  const auto offer = [&](const Constants& set, Nearness how, double distance) {
    if (best != nullptr && how > best_nearness) return;
    if (best != nullptr && how == best_nearness && distance >= best_distance) return;
    best = &set;
    best_nearness = how;
    best_distance = distance;
  };
  const bool pooled = std::any_of(sets.begin(), sets.end(), [&](const Constants& set) {
    return set.chip_generation == chip_generation && set.software == kAny;
  });
  for (const Constants& set : sets) {
    const bool same_chip = set.chip_generation == chip_generation;
    const bool any = set.software == kAny;
    const bool family =
        !any && !software.empty() && software_family(set.software) == software_family(software);
    const double apart = std::abs(release_of(set.software) - release);
    if (same_chip && !any && set.software == software) {
      offer(set, Nearness::exact, 0);
    } else if (same_chip && family) {
      offer(set, Nearness::release, apart);
    } else if (family) {
      offer(set, Nearness::family, apart + (set.error > 0 ? set.error : 1) / 1e6);
    } else if (same_chip && any) {
      offer(set, Nearness::generation, 0);
    } else if (same_chip && !pooled && set.error > 0) {
      offer(set, Nearness::generation, set.error);
    } else if (any && set.chip_generation == kAny) {
      offer(set, Nearness::pooled, 0);
    }
  }
  if (nearness != nullptr) *nearness = best_nearness;
  return best;
}

Constants constants_for(const std::vector<Constants>& sets, const catalog::Chip& chip,
                        const std::string& software) {
  Nearness nearness = Nearness::assumed;
  const Constants* found = find_constants(sets, chip.generation, software, &nearness);
  if (found == nullptr) return assumed_constants(chip);
  Constants out = *found;
  out.nearness = nearness;
  const bool far = nearness == Nearness::release || nearness == Nearness::family;
  if (far) {
    out.error = 0;
    if (out.far_interval > 0) out.interval = out.far_interval;
  }
  if (nearness == Nearness::family || nearness == Nearness::pooled) carry_to_chip(chip, out);
  cap_products(chip, out);
  if (out.interval > 0) return out;
  if (out.error <= 0 && out.far_interval > 0) {
    out.interval = out.far_interval;
    return out;
  }
  // If errors of step times are distributed like exp(-|x| / mean), 80% are within 1.61 means.
  out.interval = out.error > 0 ? 1.61 * out.error : kAssumedInterval;
  out.rest_ratio = 0;
  return out;
}

}  // namespace tutti::plan
