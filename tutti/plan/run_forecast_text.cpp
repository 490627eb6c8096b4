// Text and JSON of a forecast.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/units.h"
#include "tutti/plan/run_forecast.h"

namespace tutti::plan {
namespace {

// The date on which the price of this kind was read.
std::string price_date(const catalog::Price& price, catalog::PriceKind kind) {
  const char* name = kind == catalog::PriceKind::on_demand ? "on_demand_chip_usd_per_hour"
                     : kind == catalog::PriceKind::spot    ? "spot_chip_usd_per_hour"
                                                           : "reserved_chip_usd_per_hour";
  const auto found = price.entry.quantities.find(name);
  return found == price.entry.quantities.end() ? std::string() : found->second.date;
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
      {"best_checkpoint_interval_seconds",
       played.best.seconds > 0 ? Json(played.best.seconds) : Json(nullptr)},
      {"wall_seconds_at_best",
       played.best.seconds > 0 ? Json(played.best.wall_seconds) : Json(nullptr)},
      {"wall_seconds_at_daly",
       played.best.seconds > 0 ? Json(played.best.daly_wall_seconds) : Json(nullptr)}};
}

std::string text_of(const PlayedRuns& played, const RunForecast& f, const RunQuestion& at) {
  const SimulatedFailures& s = played.failures;
  return fmt::format(
      "{} runs take {} to {} (90%), mean {}: {:.1f} interruptions, goodput {:.1f}%, {:.1f} hours "
      "lost{}",
      at.played_runs, format_seconds(s.low_wall_seconds), format_seconds(s.high_wall_seconds),
      format_seconds(s.mean_wall_seconds), s.mean_interruptions,
      100 * f.work_seconds / s.mean_wall_seconds, (s.mean_wall_seconds - f.work_seconds) / 3600,
      played.best.seconds > 0
          ? "; best interval between checkpoints " + format_seconds(played.best.seconds)
          : "");
}

// Fields that only a run that fits has.
void clear_run(Json& out) {
  for (const char* key :
       {"time_to_target_minutes", "goodput", "interruptions", "preemptions", "spare_nodes",
        "checkpoint_interval_seconds", "memory_checkpoint_interval_seconds", "cost_usd",
        "cost_of_failures_usd", "cost_of_spares_usd", "energy_kwh", "co2e_kg", "water_liters",
        "interruptions_interval", "power", "interval", "target", "budget", "simulated_failures"}) {
    if (out.contains(key)) out[key] = nullptr;
  }
  out["cost_by_price_kind"] = Json::object();
}

// "a checkpoint every 12 min", and the peer copies.
std::string checkpoints_text(const FailureForecast& failures, double work_seconds) {
  if (std::isinf(failures.interval_seconds)) {
    const double fails = -std::expm1(-work_seconds / failures.mean_time_to_interruption_seconds);
    return fmt::format("no checkpoints: {:.1f}% of runs fail and start over", 100 * fails);
  }
  std::string text = failures.interval_seconds < work_seconds
                         ? "a checkpoint every " + format_seconds(failures.interval_seconds)
                         : "over before a checkpoint is due";
  if (failures.memory_interval_seconds > 0 && failures.memory_interval_seconds < work_seconds) {
    text += ", a peer copy every " + format_seconds(failures.memory_interval_seconds);
  }
  return text;
}

std::string memory_text(const RunForecast& f, const RunQuestion& at) {
  std::vector<std::pair<std::string, double>> kinds = f.memory.kinds;
  std::sort(kinds.begin(), kinds.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, bytes] : kinds) {
    if (bytes < 0.01 * at.system->chip.memory_bytes) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  return text;
}

}  // namespace

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
      {"savings_if_doubled", to_json(f.savings)},
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
      {"checkpoint_interval_seconds", finite(f.failures.interval_seconds)},
      {"memory_checkpoint_interval_seconds", f.failures.memory_interval_seconds > 0
                                                 ? Json(f.failures.memory_interval_seconds)
                                                 : Json(nullptr)},
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
       {{"low_minutes", finite(minutes * std::exp(-f.interval_below))},
        {"high_minutes", finite(minutes * std::exp(f.interval_above))},
        {"from", f.interval_from}}},
      {"constants", at.constants->name},
      {"gpus", at.recipe->parallel.world()},
      {"system", at.system->name}};
  if (f.storage) out["storage"] = to_json(*f.storage);
  if (at.played_runs > 0) {
    out["simulated_failures"] = f.played ? to_json(*f.played, f, at) : Json(nullptr);
  }
  if (f.within_budget) {
    out["budget"] = {{"usd", at.budget_usd},
                     {"within", *f.within_budget},
                     {"affordable_steps", f.affordable_steps}};
  }
  if (!f.memory.fits) clear_run(out);
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
                             f.memory.fits ? "fits" : "DOES NOT FIT")}};
  if (!f.memory.fits) {
    out.emplace_back("of it", memory_text(f, at));
    out.emplace_back("remedy",
                     "parallel.tp or pp, parallel.zero, recompute, batch.micro, a profile that "
                     "needs less; tutti plan search finds layouts that fit");
    return out;
  }
  if (!f.target) {  // a benchmark's run is not saved
    out.emplace_back("checkpoint",
                     fmt::format("{}, written in {} ({})", format_bytes(f.checkpoint_bytes),
                                 format_seconds(f.checkpoint_seconds), f.checkpoint_from));
  }
  const std::vector<std::pair<std::string, std::string>> run = {
      {"step",
       fmt::format("{}, limited by {}", format_seconds(step.step_seconds), limit_text(f.savings))},
      {"speed", fmt::format("{:.0f} tokens/s/GPU, MFU {:.1f}% (causal), {:.1f}% (square), {:.1f}% "
                            "(hardware)",
                            step.tokens_per_second_per_chip, 100 * step.mfu_causal,
                            100 * step.mfu_square, 100 * step.hardware_utilisation)}};
  out.insert(out.end(), run.begin(), run.end());
  if (f.storage) {
    const auto storage = describe(*f.storage);
    out.insert(out.end(), storage.begin(), storage.end());
  }
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
                                      wall_text(f.wall_seconds * std::exp(-f.interval_below)),
                                      wall_text(f.wall_seconds * std::exp(f.interval_above))));
  out.emplace_back("failures",
                   fmt::format("{:.{}f} interruptions, goodput {:.1f}%, {}, {} spare nodes",
                               f.failures.interruptions, f.failures.interruptions < 1 ? 3 : 1,
                               100 * f.work_seconds / f.wall_seconds,
                               checkpoints_text(f.failures, f.work_seconds), f.spare_nodes));
  if (at.played_runs > 0) {
    out.emplace_back(
        "simulated failures",
        f.played ? text_of(*f.played, f, at) : "none: the run is never interrupted, or never ends");
  }
  if (f.spot) {
    out.emplace_back(
        "spot",
        fmt::format("{:.1f} nodes preempted, {}", f.spot->preemptions,
                    f.spot->saves_in_time ? "after a save" : "with too short a notice to save"));
  }
  const bool ends = std::isfinite(f.wall_seconds);
  out.emplace_back(
      "estimated cost",
      bill.usd && !ends ? "endless, as the run is"
      : bill.usd
          ? fmt::format("USD {:.0f} ({}, {}), of it {:.0f} for failures; {:.0f} more for spares",
                        *bill.usd, catalog::price_kind_name(at.price_kind),
                        price_date(*at.price, at.price_kind), f.failure_usd, f.spares_usd)
          : fmt::format("NO PUBLIC PRICE of {} in the catalog; add one (--catalog FOLDER, "
                        "prices/*.yaml)",
                        at.system->name));
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
