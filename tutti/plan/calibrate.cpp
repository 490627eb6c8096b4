#include "tutti/plan/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tutti/base/error.h"
#include "tutti/plan/least_squares.h"

namespace tutti::plan {
namespace {

struct OpGroup {
  spec::Op op;
  std::string name;
  double seconds = 0;
  double share = 0;  // of all operations' time
  double calls_per_step = 0;
};

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  return values[middle];
}

std::vector<OpGroup> group_operations(const RunTrace& trace) {
  struct Member {
    const TracedOperation* first = nullptr;
    std::vector<double> seconds;
  };
  std::map<std::tuple<std::string, std::array<int64_t, 6>, double>, Member> members;
  double total = 0;
  for (const TracedOperation& operation : trace.operations) {
    Member& member = members[{operation.name, operation.dims, operation.bytes}];
    if (member.first == nullptr) member.first = &operation;
    member.seconds.push_back(operation.seconds);
  }
  std::vector<OpGroup> groups;
  const auto steps = static_cast<double>(trace.step_seconds.size());
  for (const auto& [key, member] : members) {
    OpGroup group;
    group.name = member.first->name;
    group.op.dims = member.first->dims;
    group.op.flops = member.first->flops;
    group.op.bytes = member.first->bytes;
    group.seconds = median(member.seconds);
    group.calls_per_step = static_cast<double>(member.seconds.size()) / steps;
    if (!(group.seconds > 0)) continue;  // shorter than the clock's resolution
    total += group.seconds * group.calls_per_step;
    groups.push_back(std::move(group));
  }
  for (OpGroup& group : groups) {
    group.op.name = group.name.c_str();
    group.share = group.seconds * group.calls_per_step / total;
  }
  return groups;
}

bool is_product(const OpGroup& group) { return group.name.find("gemm") != std::string::npos; }

struct FitContext {
  const catalog::System& system;
  spec::Precision precision;
  double predict(const OpGroup& group, const Constants& constants) const {
    return operation_seconds(group.op, system, constants, precision);
  }
};

// Fits `variables` of `constants` to the groups that `use` takes.
void fit_variables(const FitContext& context, const std::vector<OpGroup>& groups,
                   const std::vector<Constant>& variables,
                   const std::function<bool(const OpGroup&)>& use, Constants& constants) {
  std::vector<double> start, least, most;
  for (const Constant variable : variables) {
    const ConstantInfo& info = constant_table()[static_cast<size_t>(variable)];
    start.push_back(constants[variable]);
    least.push_back(info.least);
    most.push_back(info.most);
  }
  const auto with = [&](const std::vector<double>& values) {
    Constants out = constants;
    for (size_t i = 0; i < variables.size(); ++i) out[variables[i]] = values[i];
    return out;
  };
  const auto residuals = [&](const std::vector<double>& values) {
    const Constants trial = with(values);
    std::vector<double> out;
    for (const OpGroup& group : groups) {
      if (!use(group)) continue;
      out.push_back(std::sqrt(group.share) *
                    std::log(context.predict(group, trial) / group.seconds));
    }
    return out;
  };
  if (residuals(start).empty()) return;
  constants = with(fit_least_squares(residuals, start, least, most));
  for (const Constant variable : variables) {
    constants.origin[static_cast<size_t>(variable)] = Origin::measured;
  }
}

const std::vector<Constant> kProductVariables = {Constant::gemm_ratio, Constant::gemm_side_count,
                                                 Constant::gemm_depth_count};

// Bytes per second of each operation that moves memory, as a share of the bandwidth.
void fit_memory(const FitContext& context, const std::vector<OpGroup>& groups,
                Constants& constants) {
  const double launch = constants[Constant::launch_microseconds] * 1e-6;
  std::map<std::string, std::pair<double, double>> sums;  // share x ln ratio, share
  for (const OpGroup& group : groups) {
    if (is_product(group) || group.name.rfind("attention", 0) == 0) continue;
    const double seconds = std::max(group.seconds - launch, 0.1 * group.seconds);
    const double ratio = group.op.bytes / seconds / context.system.chip.memory_bytes_per_second;
    auto& [sum, weight] = sums[group.name];
    sum += group.share * std::log(std::max(ratio, 1e-9));
    weight += group.share;
  }
  constants.operation_ratios.clear();
  for (const auto& [name, entry] : sums) {
    constants.operation_ratios.emplace_back(
        name, std::clamp(std::exp(entry.first / entry.second), kLeastOperationRatio,
                         kMostOperationRatio));
  }
}

// Products read their operands at the bandwidth of a copy, which is what memory_ratio divides.
Constants start_from(const std::string& name) {
  Constants constants = assumed_constants();
  constants.name = name + "/tutti";
  constants.chip_generation = name;
  constants.software = "tutti";
  const auto set = [&](Constant constant, double value) {
    constants[constant] = value;
    constants.origin[static_cast<size_t>(constant)] = Origin::measured;
  };
  set(Constant::memory_ratio, 1);
  set(Constant::straggler_ratio, 0);
  set(Constant::attention_fill_count, 0);
  set(Constant::step_overhead_seconds, 0);
  set(Constant::launch_microseconds, 0);
  set(Constant::host_microseconds, 0);
  set(Constant::run_start_seconds, 0);
  set(Constant::evaluation_start_seconds, 0);
  constants[Constant::gemm_side_count] = 10;
  constants[Constant::gemm_depth_count] = 10;
  return constants;
}

}  // namespace

RunTrace parse_trace(std::string_view text, const std::string& origin) {
  RunTrace trace;
  const Json json = parse_json(text, origin);
  for (const Json& event : json_get<Json>(json, "traceEvents", origin)) {
    const std::string category = event.value("cat", "");
    const double seconds = event.value("dur", 0.0) * 1e-6;
    if (category == "step") trace.step_seconds.push_back(seconds);
    if (category != "operation") continue;
    TracedOperation operation;
    operation.name = json_get<std::string>(event, "name", origin);
    const Json args = json_get<Json>(event, "args", origin);
    const Json dims = json_get<Json>(args, "dims", origin);
    for (size_t i = 0; i < std::min(dims.size(), operation.dims.size()); ++i) {
      operation.dims[i] = dims[i].get<int64_t>();
    }
    operation.flops = json_get<double>(args, "flops", origin);
    operation.bytes = json_get<double>(args, "bytes", origin);
    operation.seconds = seconds;
    trace.operations.push_back(std::move(operation));
  }
  if (trace.step_seconds.empty() || trace.operations.empty()) {
    fail(ErrorKind::corrupt, "{}: no recorded steps; record some with tutti train RECIPE --trace 8",
         origin);
  }
  return trace;
}

catalog::System machine_system(const std::string& name, const MachineCeilings& ceilings) {
  catalog::System system;
  system.name = name;
  system.provider = "measured";
  system.fabric = name;
  system.chips_per_node = 1;
  system.largest_chips = 1;
  catalog::FabricTier tier;
  tier.name = "memory";
  tier.bytes_per_second = ceilings.bytes_per_second;
  tier.latency_seconds = 1e-6;
  system.tiers = {tier};
  system.chip.name = name;
  system.chip.vendor = "measured";
  system.chip.generation = name;
  system.chip.bf16_flops = ceilings.bf16_flops;
  system.chip.f32_flops = ceilings.f32_flops;
  system.chip.memory_bytes = ceilings.memory_bytes;
  system.chip.memory_bytes_per_second = ceilings.bytes_per_second;
  system.chip.link_bytes_per_second = ceilings.bytes_per_second;
  return system;
}

double step_spread(const Calibration& calibration) {
  return (calibration.most_step_seconds - calibration.least_step_seconds) /
         calibration.measured_step_seconds;
}

Calibration calibrate(const RunTrace& trace, const spec::Recipe& recipe,
                      const catalog::System& system, double peak_bytes) {
  Calibration out;
  out.measured_step_seconds = median(trace.step_seconds);
  const auto [least, most] =
      std::minmax_element(trace.step_seconds.begin(), trace.step_seconds.end());
  out.least_step_seconds = *least;
  out.most_step_seconds = *most;
  const std::vector<OpGroup> groups = group_operations(trace);
  const FitContext context = {system, recipe.precision};
  Constants& constants = out.constants;
  constants = start_from(system.name);

  // Between operations: per operation, so that fewer layers have less of it.
  const double calls =
      static_cast<double>(trace.operations.size()) / static_cast<double>(trace.step_seconds.size());
  double inside = 0;
  for (const TracedOperation& operation : trace.operations) inside += operation.seconds;
  inside /= static_cast<double>(trace.step_seconds.size());
  double whole = 0;
  for (const double seconds : trace.step_seconds) whole += seconds;
  whole /= static_cast<double>(trace.step_seconds.size());
  const double gap = std::max(0.0, whole - inside);
  const double most_launch =
      constant_table()[static_cast<size_t>(Constant::launch_microseconds)].most;
  const double between = std::min(gap / calls * 1e6, most_launch);
  constants[Constant::step_overhead_seconds] = std::max(0.0, gap - between * 1e-6 * calls);

  fit_variables(context, groups, kProductVariables, is_product, constants);
  for (const auto& [name, constant] :
       {std::pair{"attention_forward", Constant::attention_ratio},
        std::pair{"attention_backward", Constant::attention_backward_ratio}}) {
    fit_variables(
        context, groups, {constant}, [&](const OpGroup& group) { return group.name == name; },
        constants);
  }
  fit_memory(context, groups, constants);

  double held_out = 0;
  double measured = 0;
  for (const OpGroup& group : groups) {
    CalibratedGroup row = {group.name,
                           group.op.dims,
                           group.calls_per_step,
                           group.seconds,
                           context.predict(group, constants),
                           0};
    row.held_out_seconds = row.fitted_seconds;
    if (is_product(group)) {
      Constants without = constants;
      fit_variables(
          context, groups, kProductVariables,
          [&](const OpGroup& other) { return is_product(other) && &other != &group; }, without);
      row.held_out_seconds = context.predict(group, without);
    }
    held_out += row.held_out_seconds * row.calls_per_step;
    measured += row.measured_seconds * row.calls_per_step;
    out.groups.push_back(std::move(row));
  }
  constants.error = std::abs(held_out / measured - 1);
  std::sort(out.groups.begin(), out.groups.end(),
            [](const CalibratedGroup& a, const CalibratedGroup& b) {
              return a.measured_seconds * a.calls_per_step > b.measured_seconds * b.calls_per_step;
            });
  constants[Constant::launch_microseconds] = between;
  // Arenas are allocated once, as large as described: nothing is kept in reserve.
  constants[Constant::memory_reserve_ratio] = 1;
  constants.origin[static_cast<size_t>(Constant::memory_reserve_ratio)] = Origin::measured;
  if (peak_bytes > 0) {
    const auto map = static_cast<double>(spec::memory_map(recipe).total_bytes());
    const ConstantInfo& info = constant_table()[static_cast<size_t>(Constant::process_gigabytes)];
    constants[Constant::process_gigabytes] = std::clamp((peak_bytes - map) / 1e9, 0.0, info.most);
    constants.origin[static_cast<size_t>(Constant::process_gigabytes)] = Origin::measured;
  }
  PipelineSimulator simulator;
  Predictor predictor(system, constants, simulator);
  out.fitted_step_seconds = predictor.step(recipe, spec::tutti_profile()).step_seconds;
  // The fit of the whole step counts too: groups may hide what steps do.
  constants.error = std::max(
      {constants.error, 0.01, std::abs(out.fitted_step_seconds / out.measured_step_seconds - 1)});
  return out;
}

std::vector<std::pair<std::string, std::string>> machine_files(const std::string& name,
                                                               const MachineCeilings& ceilings,
                                                               const Constants& constants,
                                                               const std::string& source,
                                                               const std::string& date) {
  const std::string from = fmt::format("source: {{text: \"{}\", date: {}}}\n", source, date);
  return {{"chips/" + name + ".yaml",
           fmt::format("kind: chip\nname: {0}\n{1}texts:\n  vendor: measured\n  generation: {0}\n"
                       "quantities:\n  dense_bf16_tflops: {2:.6g}\n  dense_f32_tflops: {3:.6g}\n"
                       "  memory_gigabytes: {4:.6g}\n  memory_terabytes_per_second: {5:.6g}\n"
                       "  link_gigabytes_per_second: {6:.6g}\n",
                       name, from, ceilings.bf16_flops / 1e12, ceilings.f32_flops / 1e12,
                       ceilings.memory_bytes / 1e9, ceilings.bytes_per_second / 1e12,
                       ceilings.bytes_per_second / 1e9)},
          {"fabrics/" + name + ".yaml",
           fmt::format("kind: fabric\nname: {}\n{}tiers:\n  - name: memory\n"
                       "    gigabytes_per_second: {:.6g}\n    latency_microseconds: 1\n",
                       name, from, ceilings.bytes_per_second / 1e9)},
          {"systems/" + name + ".yaml",
           fmt::format("kind: system\nname: {0}\n{1}texts:\n  chip: {0}\n  fabric: {0}\n"
                       "  provider: measured\nquantities:\n  chips_per_node_count: 1\n"
                       "  largest_chips_count: 1\n",
                       name, from)},
          {"constants/" + name + ".yaml", to_yaml(constants, source, date)}};
}

Json to_json(const Calibration& calibration) {
  Json constants = Json::object();
  for (size_t i = 0; i < kConstants; ++i) {
    if (calibration.constants.origin[i] == Origin::assumed) continue;
    constants[constant_table()[i].name] = calibration.constants.value[i];
  }
  for (const auto& [name, ratio] : calibration.constants.operation_ratios) {
    constants[operation_ratio_name(name)] = ratio;
  }
  Json groups = Json::array();
  for (const CalibratedGroup& group : calibration.groups) {
    groups.push_back({{"name", group.name},
                      {"dims", group.dims},
                      {"calls_per_step", group.calls_per_step},
                      {"measured_seconds", group.measured_seconds},
                      {"fitted_seconds", group.fitted_seconds},
                      {"held_out_seconds", group.held_out_seconds}});
  }
  return {{"measured_step_seconds", calibration.measured_step_seconds},
          {"step_spread", step_spread(calibration)},
          {"fitted_step_seconds", calibration.fitted_step_seconds},
          {"error", calibration.fitted_step_seconds / calibration.measured_step_seconds - 1},
          {"held_out_error", calibration.constants.error},
          {"constants", std::move(constants)},
          {"operations", std::move(groups)}};
}

}  // namespace tutti::plan
