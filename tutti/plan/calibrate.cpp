#include "tutti/plan/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/plan/operation_fit.h"
#include "tutti/spec/memory/memory.h"

namespace tutti::plan {
namespace {

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  return values[middle];
}

// The rate of the precision that `recipe` computes in.
double& peak_of(const spec::Recipe& recipe, MachineCeilings& ceilings) {
  return recipe.precision == spec::Precision::f32 ? ceilings.f32_flops : ceilings.bf16_flops;
}

// High enough that no rate of the trace is near it: the ceilings of the fit, not of the machine.
MachineCeilings ceilings_above(const std::vector<OpGroup>& groups, const spec::Recipe& recipe,
                               MachineCeilings ceilings) {
  double& peak = peak_of(recipe, ceilings);
  for (const OpGroup& group : groups) {
    if (!is_product(group)) continue;
    const auto ranks = static_cast<double>(recipe.parallel.world());
    peak = std::max(peak, 2 * ranks * group.op.flops / group.seconds);
  }
  return ceilings;
}

// The same rates as shares of the machine's peak: the measured peak, but at least that of an
// infinitely large product, and at most so much more that the share stays in range.
void settle_peak(const spec::Recipe& recipe, MachineCeilings loose, MachineCeilings& ceilings,
                 Constants& constants) {
  const double assumed = peak_of(recipe, loose);
  const double endless = assumed * constants[Constant::gemm_ratio];
  const double least = constant_table()[static_cast<size_t>(Constant::gemm_ratio)].least;
  double& peak = peak_of(recipe, ceilings);
  peak = std::clamp(peak, endless, endless / least);
  for (const Constant ratio :
       {Constant::gemm_ratio, Constant::attention_ratio, Constant::attention_backward_ratio}) {
    const ConstantInfo& info = constant_table()[static_cast<size_t>(ratio)];
    constants[ratio] = std::clamp(constants[ratio] * assumed / peak, info.least, info.most);
  }
}

void set_measured(Constants& constants, Constant constant, double value) {
  constants[constant] = value;
  constants.origin[static_cast<size_t>(constant)] = Origin::measured;
}

// Products read their operands at the bandwidth of a copy, which memory_ratio divides.
Constants start_from(const std::string& name) {
  Constants constants = assumed_constants();
  constants.name = name + "/tutti";
  constants.chip_generation = name;
  constants.software = "tutti";
  const auto set = [&](Constant constant, double value) {
    set_measured(constants, constant, value);
  };
  set(Constant::memory_ratio, 1);
  set(Constant::straggler_ratio, 0);
  set(Constant::attention_fill_count, 0);
  set(Constant::step_overhead_seconds, 0);
  set(Constant::launch_microseconds, 0);
  set(Constant::host_microseconds, 0);
  for (const Constant overlap :
       {Constant::tp_overlap_ratio, Constant::dp_overlap_ratio, Constant::pp_overlap_ratio,
        Constant::cp_overlap_ratio, Constant::ep_overlap_ratio}) {
    set(overlap, 0);
  }
  set(Constant::link_ratio, 1);
  set(Constant::run_start_seconds, 0);
  set(Constant::evaluation_start_seconds, 0);
  constants[Constant::gemm_side_count] = 10;
  constants[Constant::gemm_depth_count] = 10;
  return constants;
}

// All constants except the memory of the process and communication between ranks.
Calibration fit_trace(const RunTrace& all, const spec::Recipe& recipe, const std::string& name,
                      const MachineCeilings& ceilings) {
  Calibration out;
  const auto [least, most] = std::minmax_element(all.step_seconds.begin(), all.step_seconds.end());
  out.least_step_seconds = *least;
  out.most_step_seconds = *most;
  out.spread = step_spread(all);
  const RunTrace trace = quieter_half(all);
  out.measured_step_seconds = median(trace.step_seconds);
  const std::vector<OpGroup> groups = group_operations(trace);
  out.ceilings = ceilings;
  const int64_t ranks = recipe.parallel.world();
  const MachineCeilings loose = ceilings_above(groups, recipe, ceilings);
  const catalog::System fit_system = machine_system(name, loose, ranks);
  catalog::check_precision(fit_system.chip, recipe.precision);
  const FitContext context = {fit_system, recipe.precision};
  Constants& constants = out.constants;
  constants = start_from(fit_system.name);

  // Time between operations: per operation, so that fewer layers have less of it.
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

  fit_products(
      context, groups, [](const OpGroup&) { return true; }, constants);
  fit_attention(context, groups, constants);
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
      fit_products(
          context, groups, [&](const OpGroup& other) { return &other != &group; }, without);
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
  // Arenas are allocated once, with their described sizes: there is no reserve.
  set_measured(constants, Constant::memory_reserve_ratio, 1);
  settle_peak(recipe, loose, out.ceilings, constants);
  return out;
}

// The predicted step; it is also compared as a whole: groups may hide errors of the step.
void judge_step(const spec::Recipe& recipe, const std::string& name, Calibration& calibration) {
  const catalog::System system =
      machine_system(name, calibration.ceilings, recipe.parallel.world());
  Constants& constants = calibration.constants;
  PipelineSimulator simulator;
  Predictor predictor(system, constants, simulator);
  const spec::Profile profile = spec::tutti_profile_on(recipe);
  calibration.fitted_step_seconds = predictor.step(recipe, profile).step_seconds;
  const double error = calibration.fitted_step_seconds / calibration.measured_step_seconds - 1;
  constants.error = std::max({constants.error, 0.01, std::abs(error)});
}

// Bandwidth of the link between ranks for which a step's gradients take `seconds`: that time is a
// constant plus a part proportional to 1 / bandwidth.
double link_bandwidth(const spec::Recipe& recipe, const std::string& name, MachineCeilings ceilings,
                      const Constants& constants, double seconds) {
  const spec::Program program = spec::make_program(recipe, spec::tutti_profile_on(recipe));
  const auto at = [&](double bandwidth) {
    ceilings.link_bytes_per_second = bandwidth;
    const catalog::System system = machine_system(name, ceilings, recipe.parallel.world());
    return price_program(program, recipe, system, constants).ranks[0].reduce;
  };
  constexpr double kSlow = 1e9;
  constexpr double kEndless = 1e18;
  const double constant = at(kEndless);
  const double share = (at(kSlow) - constant) * kSlow;
  return share / std::max(seconds - constant, 0.1 * seconds);
}

}  // namespace

Calibration calibrate(const RunTrace& trace, const spec::Recipe& recipe, const std::string& name,
                      const MachineCeilings& ceilings, double peak_bytes) {
  Calibration out = fit_trace(trace, recipe, name, ceilings);
  if (peak_bytes > 0) {
    const auto map = static_cast<double>(spec::memory_map(recipe).total_bytes());
    const ConstantInfo& info = constant_table()[static_cast<size_t>(Constant::process_gigabytes)];
    set_measured(out.constants, Constant::process_gigabytes,
                 std::clamp((peak_bytes - map) / 1e9, 0.0, info.most));
  }
  judge_step(recipe, name, out);
  return out;
}

Calibration calibrate_ranks(const RankRecording& run, const std::string& name,
                            const Calibration& alone) {
  Calibration out = fit_trace(run.trace, run.recipe, name, alone.ceilings);
  const int64_t ranks = run.recipe.parallel.world();
  TUTTI_CHECK(ranks > 1, "{} ranks do not share a machine", ranks);
  Constants& constants = out.constants;
  const auto process = static_cast<size_t>(Constant::process_gigabytes);
  constants.value[process] = alone.constants.value[process];
  constants.origin[process] = alone.constants.origin[process];
  // As in host_seconds.
  const ConstantInfo& info = constant_table()[static_cast<size_t>(Constant::straggler_ratio)];
  const double waiting =
      run.waiting_seconds / out.measured_step_seconds * 10 / std::log2(static_cast<double>(ranks));
  set_measured(constants, Constant::straggler_ratio, std::clamp(waiting, info.least, info.most));
  if (run.communication_seconds > 0) {
    out.ceilings.link_bytes_per_second =
        link_bandwidth(run.recipe, name, out.ceilings, constants, run.communication_seconds);
  }
  out.measured_step_seconds += run.exposed_seconds + run.waiting_seconds;
  judge_step(run.recipe, name, out);
  return out;
}

void calibrate_precision(const RunTrace& trace, const spec::Recipe& recipe, const std::string& name,
                         Calibration& calibration) {
  const catalog::System system =
      machine_system(name, calibration.ceilings, recipe.parallel.world());
  const FitContext context = {system, recipe.precision};
  peak_of(recipe, calibration.ceilings) *=
      products_ratio(context, group_operations(quieter_half(trace)), calibration.constants);
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
          {"step_spread", calibration.spread},
          {"fitted_step_seconds", calibration.fitted_step_seconds},
          {"error", calibration.fitted_step_seconds / calibration.measured_step_seconds - 1},
          {"held_out_error", calibration.constants.error},
          {"constants", std::move(constants)},
          {"operations", std::move(groups)}};
}

}  // namespace tutti::plan
