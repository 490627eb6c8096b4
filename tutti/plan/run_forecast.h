// Forecast of one run on one system: step, memory, time to its end with evaluations, slow nodes and
// failures, cost, and constraints. Every figure is an estimate; `interval_from` states its accuracy
// and the reason for it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/plan/anchor.h"
#include "tutti/plan/bill.h"
#include "tutti/plan/resilience.h"
#include "tutti/plan/sensitivity.h"
#include "tutti/plan/software_spread.h"
#include "tutti/plan/storage_cost.h"
#include "tutti/plan/target.h"

namespace tutti::plan {

// Bandwidth at which a node writes checkpoints if the system states none: 1 GB/s. Meta's 2 TB/s for
// 3,072 nodes of 8 GPUs (Llama 3, section 3.3) are 0.65.
inline constexpr double kAssumedNodeStorageBytesPerSecond = 1e9;

struct RunQuestion {
  const spec::Recipe* recipe = nullptr;
  const spec::Profile* profile = nullptr;  // see profile_on (predict.h)
  const catalog::System* system = nullptr;
  const catalog::Site* site = nullptr;
  const catalog::Price* price = nullptr;      // may be null
  const catalog::Storage* storage = nullptr;  // of every node, measured; may be null
  catalog::PriceKind price_kind = catalog::PriceKind::on_demand;
  const Constants* constants = nullptr;
  Correction correction;        // by measured steps (anchor.h)
  double interval = 0;          // of the logarithm of time; 0: that of the constants
  std::vector<NodeExit> exits;  // ways that the software may have, without anchors
  FailureModel failures;
  SlowNodes slow;
  SpotModel spot;                 // used with price kind spot
  double repair_seconds = 86400;  // of a failed node
  int played_runs = 0;            // simulated under random failures; 0: closed form only
  uint64_t seed = 1;              // of the simulated runs
  double budget_usd = 0;          // 0: none
  double site_power_watts = 0;    // of the facility; 0: no cap
  // Else train.steps of the recipe. A run of a benchmark cannot be resumed (failures.h).
  const catalog::Benchmark* benchmark = nullptr;
  std::string ruleset;
};

struct KindCost {
  std::string kind;
  double usd = 0;
  double wall_seconds = 0;
};

struct PowerLimit {
  double facility_watts = 0;    // of the run
  int64_t chips_allowed = -1;   // under the site's cap; -1: no cap
  int64_t nodes_per_rack = -1;  // under the rack's cap; -1: no cap stated
  int64_t racks = 0;            // needed in that case
  bool within = true;
};

// The run under failures alone, simulated many times (failures.h), and the best interval between
// its checkpoints.
struct PlayedRuns {
  SimulatedFailures failures;
  SimulatedInterval best;  // zeros if a run cannot be resumed
};

struct RunForecast {
  StepPrediction step;  // its bottleneck is the resource with the largest saving
  std::vector<Saving> savings;
  MemoryPrediction memory;
  std::optional<TargetForecast> target;
  double tokens = 0;
  double steps = 0;
  double slow_factor = 1;
  double work_seconds = 0;  // including slow nodes
  FailureForecast failures;
  std::optional<PlayedRuns> played;  // if requested, and if the run ends
  InterruptionInterval interruptions;
  std::optional<SpotForecast> spot;
  double wall_seconds = 0;
  int64_t spare_nodes = 0;
  Bill bill;               // of the requested price kind
  double failure_usd = 0;  // of its cost, for time lost to failures
  double spares_usd = 0;   // in addition, for spares on standby
  std::vector<KindCost> costs;
  std::optional<bool> within_budget;
  double affordable_steps = 0;
  PowerLimit power;
  double checkpoint_bytes = 0;
  double checkpoint_seconds = 0;
  std::string checkpoint_from;             // which bandwidth
  std::optional<StorageForecast> storage;  // if one was given
  // 80% of runs take between exp(-interval_below) and exp(interval_above) of the time.
  double interval_below = 0;
  double interval_above = 0;
  std::string interval_from;
};

// Throws usage if there is a budget but no price.
RunForecast forecast_run(const RunQuestion& question, PipelineSimulator& simulator);
// If the run does not fit, its time and cost are null; describe then returns the system, the memory
// and its parts, and nothing about the run.
Json to_json(const RunForecast& forecast, const RunQuestion& question);
std::vector<std::pair<std::string, std::string>> describe(const RunForecast& forecast,
                                                          const RunQuestion& question);

}  // namespace tutti::plan
