#include "tutti/plan/run_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/base/units.h"
#include "tutti/plan/interval.h"

namespace tutti::plan {
namespace {

constexpr double kSaidSpread = 0.1;  // of the logarithm of time

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
  if (std::isnan(node)) {  // the cap cannot be checked
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

void set_costs(const RunQuestion& at, const FailureModel& failures, int64_t nodes,
               RunForecast& out) {
  if (at.price == nullptr) return;
  const double billed = real(billed_chips(*at.system, at.recipe->parallel.world()));
  for (const catalog::PriceKind kind :
       {catalog::PriceKind::on_demand, catalog::PriceKind::spot, catalog::PriceKind::reserved}) {
    const double usd = price_of(*at.price, kind);
    if (usd <= 0) continue;
    double wall = out.failures.wall_seconds;
    if (kind == catalog::PriceKind::spot) {
      wall = forecast_spot(failures, at.spot, nodes, out.work_seconds).wall_seconds;
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
  if (out.storage) {
    out.checkpoint_seconds = out.storage->save_seconds;
    out.checkpoint_from = "storage measured on a node: " + out.storage->storage;
    return;
  }
  const double stated = at.system->storage_bytes_per_second;
  const double bandwidth = stated > 0 ? stated : kAssumedNodeStorageBytesPerSecond * real(nodes);
  out.checkpoint_seconds = out.checkpoint_bytes / bandwidth;
  out.checkpoint_from = stated > 0 ? "storage of the system, stated in the catalog"
                                   : "assumed storage of 1 GB/s per node";
}

// Runs with more interruptions in total than this are not simulated: a minute's work.
constexpr double kMostPlayed = 5e9;

std::optional<PlayedRuns> play_runs(const RunQuestion& at, const FailureModel& failures,
                                    const FailureForecast& closed, int64_t nodes,
                                    double work_seconds) {
  const double mean_time = closed.mean_time_to_interruption_seconds;
  if (at.played_runs == 0 || !std::isfinite(closed.wall_seconds) || !std::isfinite(mean_time)) {
    return std::nullopt;
  }
  // Each search for the interval simulates all runs some twenty times.
  const double interval =
      closed.memory_interval_seconds > 0 ? closed.memory_interval_seconds : closed.interval_seconds;
  const double pieces = closed.wall_seconds / std::min(mean_time, interval);
  if (20 * pieces * at.played_runs > kMostPlayed) {
    fail(ErrorKind::usage,
         "--simulate-failures: a run has {:.0f} interruptions and checkpoints, too many to "
         "simulate it "
         "{} times; give {} or less",
         pieces, at.played_runs, std::floor(kMostPlayed / 20 / pieces));
  }
  PlayedRuns out;
  out.failures = simulate_failures(failures, nodes, work_seconds, at.played_runs, at.seed);
  if (failures.resumes) {
    out.best = simulated_interval(failures, nodes, work_seconds, at.played_runs, at.seed);
  }
  return out;
}

}  // namespace

RunForecast forecast_run(const RunQuestion& at, PipelineSimulator& simulator) {
  const spec::Recipe& recipe = *at.recipe;
  const int64_t chips = recipe.parallel.world();
  const int64_t nodes = (chips + at.system->chips_per_node - 1) / at.system->chips_per_node;
  if (at.budget_usd > 0 && at.price == nullptr) {
    fail(ErrorKind::usage,
         "--budget: the catalog has no public price of {}; add one (--catalog FOLDER, "
         "prices/*.yaml) or leave the budget out",
         at.system->name);
  }
  RunForecast out;
  const FailureModel failures =
      at.benchmark != nullptr ? without_resuming(at.failures) : at.failures;
  Predictor predictor(*at.system, *at.constants, simulator);
  const spec::Profile profile = profile_on(*at.profile, recipe, at.system->chip);
  out.step = predictor.step(recipe, profile);
  out.savings = savings(recipe, profile, *at.system, *at.constants, out.step, simulator);
  out.step.bottleneck = out.savings.front().resource;
  out.step = corrected(out.step, at.correction);
  out.memory = predict_memory(recipe, profile, *at.system, *at.constants);
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
  if (at.storage != nullptr) {
    out.storage = forecast_storage(*at.storage, recipe, *at.system, out.step.step_seconds);
    out.work_seconds *= out.storage->feed_factor;
  }
  out.failures = forecast_failures(failures, nodes, out.work_seconds);
  if (out.storage && failures.resumes && out.failures.interval_seconds < out.work_seconds) {
    out.storage->interval_seconds = out.failures.interval_seconds;
  }
  out.interruptions = interruption_interval(failures, nodes, out.failures.wall_seconds / 86400);
  out.played = play_runs(at, failures, out.failures, nodes, out.work_seconds);
  out.wall_seconds = out.failures.wall_seconds;
  if (at.price_kind == catalog::PriceKind::spot) {
    out.spot = forecast_spot(failures, at.spot, nodes, out.work_seconds);
    out.wall_seconds = out.spot->wall_seconds;
  }
  // In a run of minutes no failed node returns from repair, nor are more spares needed until its
  // end.
  out.spare_nodes = spares_needed(at.failures.per_node_per_day, nodes,
                                  std::min(at.repair_seconds, out.wall_seconds));
  out.bill =
      bill_of(*at.system, *at.site, at.price, at.price_kind, out.step, chips, out.wall_seconds);
  set_costs(at, failures, nodes, out);
  out.power = power_limit(at, out.bill, nodes);
  set_checkpoint(at, nodes, out);
  double interval = at.interval > 0 ? at.interval : at.constants->interval;
  if (interval == 0) interval = kAssumedInterval;
  interval *= error_growth(at.constants->rest_ratio, products_share(out.step.split));
  out.interval_from =
      fmt::format("80% of measured steps, {}", nearness_text(at.constants->nearness));
  SoftwareSpread open;
  if (at.correction.anchors == 0) {
    open = software_spread(recipe, profile, *at.system, *at.constants, at.exits, simulator);
  }
  out.interval_below = interval + open.shorter;
  out.interval_above = interval + open.longer;
  if (open.longer > kSaidSpread) {
    out.interval_from += fmt::format(
        "; the step takes {:.2f} times as long where collectives leave a node as in {} "
        "(--software)",
        std::exp(open.longer), open.longest);
  }
  if (at.correction.anchors > 0) {
    out.interval_from += fmt::format(", corrected by {} of your measurements: times {:.3f}",
                                     at.correction.anchors, std::exp(at.correction.log_factor));
  }
  return out;
}

}  // namespace tutti::plan
