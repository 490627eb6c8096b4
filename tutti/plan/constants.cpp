#include "tutti/plan/constants.h"

#include <fmt/format.h>

#include <algorithm>
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
      {"batched_ratio", 0.35, 0.02, 1.0},
      {"memory_ratio", 0.85, 0.2, 1.0},
      {"launch_microseconds", 4, 0, 40},
      {"host_microseconds", 40, 0, 200},
      {"link_ratio", 0.80, 0.1, 1.1},
      {"network_ratio", 0.80, 0.1, 1.0},
      {"rail_ratio", 0.5, 0, 1.0},
      {"collective_microseconds", 10, 0, 200},
      {"tp_overlap_ratio", 0.4, 0, 1.0},
      {"dp_overlap_ratio", 0.8, 0, 1.0},
      {"pp_overlap_ratio", 0.5, 0, 1.0},
      {"cp_overlap_ratio", 0.5, 0, 1.0},
      {"ep_overlap_ratio", 0, 0, 1.0},
      {"expert_imbalance_ratio", 1.0, 1.0, 3.0},
      {"straggler_ratio", 0.02, 0, 0.3},
      {"step_overhead_seconds", 0.01, 0, 2.0},
      {"run_start_seconds", 5, 0, 60},
      {"evaluation_start_seconds", 0.5, 0, 10},
      {"process_gigabytes", 0, 0, 16},
      {"memory_reserve_ratio", 1.04, 1.0, 1.3},
  }};
  return table;
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

Constants assumed_constants(const catalog::Chip& chip) {
  Constants constants = assumed_constants();
  const auto limit = [&](Constant constant, double measured) {
    if (measured > 0) constants[constant] = std::min(constants[constant], measured);
  };
  limit(Constant::gemm_ratio, chip.best_product_ratio);
  limit(Constant::gemm_fp8_ratio,
        chip.best_fp8_product_ratio > 0 ? chip.best_fp8_product_ratio : chip.best_product_ratio);
  const ConstantInfo& assumed = constant_table()[static_cast<size_t>(Constant::gemm_ratio)];
  const double share = constants[Constant::gemm_ratio] / assumed.assumed;
  constants[Constant::attention_ratio] *= share;
  constants[Constant::attention_backward_ratio] *= share;
  return constants;
}

Constants constants_from(const catalog::Entry& entry) {
  std::vector<std::string> known = {"held_out_error_ratio"};
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
                                const std::string& chip_generation, const std::string& software) {
  const Constants* best = nullptr;
  for (const Constants& set : sets) {
    if (set.chip_generation != chip_generation) continue;
    if (set.software == software) return &set;
    if (set.error == 0) continue;  // nobody knows how good it is
    if (best == nullptr || set.error < best->error) best = &set;
  }
  return best;
}

Constants constants_for(const std::vector<Constants>& sets, const catalog::Chip& chip,
                        const std::string& software) {
  const Constants* found = find_constants(sets, chip.generation, software);
  return found != nullptr ? *found : assumed_constants(chip);
}

}  // namespace tutti::plan
