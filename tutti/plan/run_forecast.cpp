#include "tutti/plan/run_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

// When the price of this kind was read.
std::string price_date(const catalog::Price& price, catalog::PriceKind kind) {
  const char* name = kind == catalog::PriceKind::on_demand ? "on_demand_chip_usd_per_hour"
                     : kind == catalog::PriceKind::spot    ? "spot_chip_usd_per_hour"
                                                           : "reserved_chip_usd_per_hour";
  const auto found = price.entry.quantities.find(name);
  return found == price.entry.quantities.end() ? std::string() : found->second.date;
}

double price_of(const catalog::Price& price, catalog::PriceKind kind) {
  switch (kind) {
    case catalog::PriceKind::on_demand: return price.on_demand_usd_per_hour;
    case catalog::PriceKind::spot: return price.spot_usd_per_hour;
    case catalog::PriceKind::reserved: return price.reserved_usd_per_hour;
  }
  return 0;
}

PowerLimit power_limit(const RunQuestion& at, const Bill& bill, int64_t nodes) {
  PowerLimit out;
  const double node = bill.node_watts * at.site->pue;
  if (std::isnan(node)) {  // no cap can be kept
    out.facility_watts = node;
    out.within = at.site_power_watts <= 0;
    return out;
  }
  out.facility_watts = node * real(nodes);
  if (at.site_power_watts > 0) {
    out.chips_allowed =
        static_cast<int64_t>(at.site_power_watts / node) * at.system->chips_per_node;
    out.within = out.facility_watts <= at.site_power_watts;
  }
  if (at.site->rack_watts > 0) {
    out.nodes_per_rack = static_cast<int64_t>(at.site->rack_watts / bill.node_watts);
    if (at.system->nodes_per_rack > 0) {
      out.nodes_per_rack = std::min(out.nodes_per_rack, at.system->nodes_per_rack);
    }
    out.within = out.within && out.nodes_per_rack > 0;
    if (out.nodes_per_rack > 0) out.racks = (nodes + out.nodes_per_rack - 1) / out.nodes_per_rack;
  }
  return out;
}

void set_costs(const RunQuestion& at, int64_t nodes, RunForecast& out) {
  if (at.price == nullptr) return;
  const double billed = real(billed_chips(*at.system, at.recipe->parallel.world()));
  for (const catalog::PriceKind kind :
       {catalog::PriceKind::on_demand, catalog::PriceKind::spot, catalog::PriceKind::reserved}) {
    const double usd = price_of(*at.price, kind);
    if (usd <= 0) continue;
    double wall = out.failures.wall_seconds;
    if (kind == catalog::PriceKind::spot) {
      wall = forecast_spot(at.failures, at.spot, nodes, out.work_seconds).wall_seconds;
    }
    out.costs.push_back({catalog::price_kind_name(kind), usd * billed * wall / 3600, wall});
  }
  if (!out.bill.usd) return;
  out.failure_usd = *out.bill.usd * (1 - out.work_seconds / out.wall_seconds);
  out.spares_usd = *out.bill.usd * real(out.spare_nodes) / real(nodes);
  if (at.budget_usd > 0) {
    const double cost = *out.bill.usd + out.spares_usd;
    out.within_budget = cost <= at.budget_usd;
    out.affordable_steps = out.steps * std::min(1.0, at.budget_usd / cost);
  }
}

void set_checkpoint(const RunQuestion& at, int64_t nodes, RunForecast& out) {
  const spec::ParamTable table = spec::param_table(at.recipe->model, at.recipe->lora);
  out.checkpoint_bytes = 12 * real(table.trainable_count());
  const double stated = at.system->storage_bytes_per_second;
  const double bandwidth = stated > 0 ? stated : kAssumedNodeStorageBytesPerSecond * real(nodes);
  out.checkpoint_seconds = out.checkpoint_bytes / bandwidth;
  out.checkpoint_from = stated > 0 ? "storage of the system, stated in the catalog"
                                   : "assumed storage of 1 GB/s per node";
}

// Runs that would be interrupted more often than this together are not played: a minute's work.
constexpr double kMostPlayed = 5e9;

std::optional<PlayedRuns> play_runs(const RunQuestion& at, const FailureForecast& closed,
                                    int64_t nodes, double work_seconds) {
  const double mean_time = closed.mean_time_to_interruption_seconds;
  if (at.played_runs == 0 || !std::isfinite(closed.wall_seconds) || !std::isfinite(mean_time)) {
    return std::nullopt;
  }
  // Each search of the interval plays all runs some twenty times.
  const double pieces = closed.wall_seconds / std::min(mean_time, closed.interval_seconds);
  if (20 * pieces * at.played_runs > kMostPlayed) {
    fail(ErrorKind::usage,
         "--simulate-failures: a run has {:.0f} interruptions and checkpoints, too many to play it "
         "{} times; give {} or less",
         pieces, at.played_runs, std::floor(kMostPlayed / 20 / pieces));
  }
  return PlayedRuns{simulate_failures(at.failures, nodes, work_seconds, at.played_runs, at.seed),
                    simulated_interval(at.failures, nodes, work_seconds, at.played_runs, at.seed)};
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string wall_text(double seconds) {
  return std::isfinite(seconds) ? format_seconds(seconds) : "never";
}

Json to_json(const PlayedRuns& played, const RunForecast& f, const RunQuestion& at) {
  const SimulatedFailures& s = played.failures;
  return {
      {"runs", at.played_runs},
      {"seed", at.seed},
      {"wall_seconds",
       {{"low", s.low_wall_seconds}, {"mean", s.mean_wall_seconds}, {"high", s.high_wall_seconds}}},
      {"interruptions",
       {{"low", s.low_interruptions},
        {"mean", s.mean_interruptions},
        {"high", s.high_interruptions}}},
      {"goodput", f.work_seconds / s.mean_wall_seconds},
      {"lost_hours", (s.mean_wall_seconds - f.work_seconds) / 3600},
      {"best_checkpoint_interval_seconds", played.best.seconds},
      {"wall_seconds_at_best", played.best.wall_seconds},
      {"wall_seconds_at_daly", played.best.daly_wall_seconds}};
}

std::string text_of(const PlayedRuns& played, const RunForecast& f, const RunQuestion& at) {
  const SimulatedFailures& s = played.failures;
  return fmt::format(
      "{} runs take {} to {} (90%), mean {}: {:.1f} interruptions, goodput {:.1f}%, {:.1f} hours "
      "lost; best interval between checkpoints {}",
      at.played_runs, format_seconds(s.low_wall_seconds), format_seconds(s.high_wall_seconds),
      format_seconds(s.mean_wall_seconds), s.mean_interruptions,
      100 * f.work_seconds / s.mean_wall_seconds, (s.mean_wall_seconds - f.work_seconds) / 3600,
      format_seconds(played.best.seconds));
}

}  // namespace

RunForecast forecast_run(const RunQuestion& at, PipelineSimulator& simulator) {
  const spec::Recipe& recipe = *at.recipe;
  const int64_t chips = recipe.parallel.world();
  const int64_t nodes = (chips + at.system->chips_per_node - 1) / at.system->chips_per_node;
  RunForecast out;
  Predictor predictor(*at.system, *at.constants, simulator);
  out.step = predictor.step(recipe, *at.profile);
  out.memory = predict_memory(recipe, *at.profile, *at.system, *at.constants);
  out.steps = real(recipe.train.steps);
  out.work_seconds = out.step.step_seconds * out.steps;
  if (at.benchmark != nullptr) {
    out.target = forecast_target(*at.benchmark, at.ruleset, recipe, out.step, *at.constants);
    out.steps = out.target->steps;
    out.work_seconds = out.target->work_seconds;
  }
  out.tokens = out.steps * real(recipe.batch.global) * real(recipe.batch.sequence);
  out.slow_factor = slow_node_factor(at.slow, nodes);
  out.work_seconds *= out.slow_factor;
  out.failures = forecast_failures(at.failures, nodes, out.work_seconds);
  out.interruptions = interruption_interval(at.failures, nodes, out.failures.wall_seconds / 86400);
  out.played = play_runs(at, out.failures, nodes, out.work_seconds);
  out.wall_seconds = out.failures.wall_seconds;
  if (at.price_kind == catalog::PriceKind::spot) {
    out.spot = forecast_spot(at.failures, at.spot, nodes, out.work_seconds);
    out.wall_seconds = out.spot->wall_seconds;
  }
  out.spare_nodes = spares_needed(at.failures.per_node_per_day, nodes, at.repair_seconds);
  out.bill =
      bill_of(*at.system, *at.site, at.price, at.price_kind, out.step, chips, out.wall_seconds);
  set_costs(at, nodes, out);
  out.power = power_limit(at, out.bill, nodes);
  set_checkpoint(at, nodes, out);
  const double error = at.constants->error;
  out.interval_ratio = error > 0 ? std::min(0.95, 2 * error) : 0.25;
  out.interval_from =
      error > 0 ? fmt::format("twice the mean error of {} on what it was not fitted on, {:.1f}%",
                              at.constants->name, 100 * error)
                : "nobody has measured this chip and software: a quarter either way";
  return out;
}

Json to_json(const RunForecast& f, const RunQuestion& at) {
  const StepPrediction& step = f.step;
  Json kinds = Json::object();
  for (const auto& [name, bytes] : f.memory.kinds) kinds[name] = bytes;
  Json costs = Json::object();
  for (const KindCost& cost : f.costs) {
    costs[cost.kind] = {{"usd", finite(cost.usd)}, {"wall_seconds", finite(cost.wall_seconds)}};
  }
  const double minutes = f.wall_seconds / 60;
  Json out = {
      {"estimated", true},
      {"fits", f.memory.fits},
      {"step_seconds", step.step_seconds},
      {"bottleneck", step.bottleneck},
      {"tokens_per_second_per_gpu", step.tokens_per_second_per_chip},
      {"mfu", step.mfu_causal},
      {"mfu_square", step.mfu_square},
      {"hardware_utilisation", step.hardware_utilisation},
      {"memory_bytes_per_rank", f.memory.bytes},
      {"memory_allocated_bytes", f.memory.allocated_bytes},
      {"memory_by_kind_bytes", std::move(kinds)},
      {"tokens", f.tokens},
      {"steps", f.steps},
      {"time_to_target_minutes", finite(minutes)},
      {"target", f.target ? to_json(*f.target) : Json(nullptr)},
      {"slow_node_factor", f.slow_factor},
      {"goodput", finite(f.work_seconds / f.wall_seconds)},
      {"interruptions", f.failures.interruptions},
      {"interruptions_interval", {{"low", f.interruptions.low}, {"high", f.interruptions.high}}},
      {"preemptions", f.spot ? finite(f.spot->preemptions) : Json(nullptr)},
      {"spare_nodes", f.spare_nodes},
      {"checkpoint_interval_seconds", f.failures.interval_seconds},
      {"checkpoint_bytes", f.checkpoint_bytes},
      {"checkpoint_write_seconds", f.checkpoint_seconds},
      {"checkpoint_write_from", f.checkpoint_from},
      {"cost_usd", f.bill.usd ? finite(*f.bill.usd) : Json(nullptr)},
      {"cost_of_failures_usd", f.bill.usd ? finite(f.failure_usd) : Json(nullptr)},
      {"cost_of_spares_usd", f.bill.usd ? finite(f.spares_usd) : Json(nullptr)},
      {"cost_by_price_kind", std::move(costs)},
      {"energy_kwh", finite(f.bill.facility_kwh)},
      {"co2e_kg", finite(f.bill.co2e_kg)},
      {"water_liters", finite(f.bill.water_liters)},
      {"power",
       {{"facility_watts", finite(f.power.facility_watts)},
        {"gpus_allowed", f.power.chips_allowed >= 0 ? Json(f.power.chips_allowed) : Json(nullptr)},
        {"nodes_per_rack",
         f.power.nodes_per_rack >= 0 ? Json(f.power.nodes_per_rack) : Json(nullptr)},
        {"racks", f.power.racks > 0 ? Json(f.power.racks) : Json(nullptr)},
        {"within", f.power.within}}},
      {"interval",
       {{"low_minutes", finite(minutes * (1 - f.interval_ratio))},
        {"high_minutes", finite(minutes * (1 + f.interval_ratio))},
        {"from", f.interval_from}}},
      {"constants", at.constants->name},
      {"gpus", at.recipe->parallel.world()},
      {"system", at.system->name}};
  if (at.played_runs > 0) {
    out["simulated_failures"] = f.played ? to_json(*f.played, f, at) : Json(nullptr);
  }
  if (f.within_budget) {
    out["budget"] = {{"usd", at.budget_usd},
                     {"within", *f.within_budget},
                     {"affordable_steps", f.affordable_steps}};
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> describe(const RunForecast& f,
                                                          const RunQuestion& at) {
  const StepPrediction& step = f.step;
  const Bill& bill = f.bill;
  std::vector<std::pair<std::string, std::string>> out = {
      {"system", fmt::format("{} x {} ({})", at.recipe->parallel.world(), at.system->chip.name,
                             at.system->name)},
      {"constants", at.constants->name},
      {"interval", f.interval_from},
      {"memory", fmt::format("{} of {} per GPU: {}", format_bytes(f.memory.bytes),
                             format_bytes(at.system->chip.memory_bytes),
                             f.memory.fits ? "fits" : "DOES NOT FIT")},
      {"checkpoint", fmt::format("{}, written in {} ({})", format_bytes(f.checkpoint_bytes),
                                 format_seconds(f.checkpoint_seconds), f.checkpoint_from)},
      {"step",
       fmt::format("{}, limited by {}", format_seconds(step.step_seconds), step.bottleneck)},
      {"speed", fmt::format("{:.0f} tokens/s/GPU, MFU {:.1f}% (causal), {:.1f}% (square), {:.1f}% "
                            "(hardware)",
                            step.tokens_per_second_per_chip, 100 * step.mfu_causal,
                            100 * step.mfu_square, 100 * step.hardware_utilisation)}};
  if (f.target) {
    out.emplace_back(
        "target", fmt::format("{} in {:.0f} samples ({}), {:.1f} evaluations of {}",
                              f.target->benchmark, f.target->samples, f.target->basis,
                              f.target->evaluations, format_seconds(f.target->evaluation_seconds)));
  }
  if (f.slow_factor > 1) {
    out.emplace_back("slow nodes", fmt::format("steps take {:.2f} times as long", f.slow_factor));
  }
  out.emplace_back("run", fmt::format("{} tokens in {} ({} to {})", format_count(f.tokens),
                                      wall_text(f.wall_seconds),
                                      wall_text(f.wall_seconds * (1 - f.interval_ratio)),
                                      wall_text(f.wall_seconds * (1 + f.interval_ratio))));
  out.emplace_back(
      "failures",
      fmt::format("{:.1f} interruptions, goodput {:.1f}%, a checkpoint every {}, {} spare nodes",
                  f.failures.interruptions, 100 * f.work_seconds / f.wall_seconds,
                  format_seconds(f.failures.interval_seconds), f.spare_nodes));
  if (at.played_runs > 0) {
    out.emplace_back(
        "simulated failures",
        f.played ? text_of(*f.played, f, at) : "none: the run is never interrupted, or never ends");
  }
  if (f.spot) {
    out.emplace_back("spot",
                     fmt::format("{:.1f} nodes taken away, {}", f.spot->preemptions,
                                 f.spot->saves_in_time ? "after a save" : "too suddenly to save"));
  }
  const bool ends = std::isfinite(f.wall_seconds);
  out.emplace_back(
      "estimated cost",
      bill.usd && !ends ? "endless, as the run is"
      : bill.usd
          ? fmt::format("USD {:.0f} ({}, {}), of it {:.0f} for failures; {:.0f} more for spares",
                        *bill.usd, catalog::price_kind_name(at.price_kind),
                        price_date(*at.price, at.price_kind), f.failure_usd, f.spares_usd)
          : "no price of this system in the catalog");
  for (const KindCost& cost : f.costs) {
    if (!std::isfinite(cost.usd)) continue;
    out.emplace_back("  " + cost.kind,
                     fmt::format("USD {:.0f} in {}", cost.usd, wall_text(cost.wall_seconds)));
  }
  if (f.within_budget) {
    out.emplace_back("budget", fmt::format("USD {:.0f}: {}, {:.0f} of {:.0f} steps", at.budget_usd,
                                           *f.within_budget ? "enough" : "NOT ENOUGH",
                                           f.affordable_steps, f.steps));
  }
  if (std::isnan(bill.node_watts)) {
    out.emplace_back("estimated energy", fmt::format("unknown: the catalog has no "
                                                     "board_power_watts of chip {}{}",
                                                     at.system->chip.name,
                                                     f.power.within ? "" : "; NO CAP CAN BE KEPT"));
    return out;
  }
  out.emplace_back(
      "estimated energy",
      ends ? fmt::format("{:.0f} kWh, {:.0f} kg CO2e, {:.0f} l water ({})", bill.facility_kwh,
                         bill.co2e_kg, bill.water_liters, at.site->name)
           : "endless, as the run is");
  std::string power = fmt::format("{:.1f} kW of the facility", f.power.facility_watts / 1e3);
  if (f.power.chips_allowed >= 0) {
    power += fmt::format("; the cap of {:.1f} kW allows {} GPUs{}", at.site_power_watts / 1e3,
                         f.power.chips_allowed, f.power.within ? "" : ": NOT ENOUGH");
  }
  if (f.power.nodes_per_rack >= 0) {
    power += fmt::format("; {} nodes in a rack of {:.1f} kW, {} racks", f.power.nodes_per_rack,
                         at.site->rack_watts / 1e3, f.power.racks);
  }
  out.emplace_back("estimated power", power);
  return out;
}

}  // namespace tutti::plan
