#include "tutti/cli/bench/machine_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/cli/bench/scaling_ranks.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

constexpr int64_t kLayers = 4;
constexpr int64_t kSteps = 7;
constexpr int64_t kMostRanks = 8;  // systems of more have the constants of one rank
constexpr int kAttempts = 3;       // while steps scatter; the quickest counts

}  // namespace

plan::RankRecording probe_machine(const std::string& run, const spec::Recipe& recipe, int64_t ranks,
                                  int64_t threads, spec::Precision precision) {
  const int64_t dense = recipe.model.moe.experts > 0 ? recipe.model.moe.first_dense_layers : 0;
  const int64_t micro = std::max<int64_t>(1, recipe.batch.micro / ranks);
  ScalingRun scaling;
  scaling.recipe = train::recipe_path(run);
  scaling.overrides = {
      fmt::format("model.layers={}", std::min(recipe.model.layers, dense + kLayers)),
      fmt::format("precision={}", spec::name_of(spec::kPrecisionNames, precision)),
      fmt::format("batch.micro={}", micro),
      fmt::format("batch.global={}", micro * ranks),
      fmt::format("parallel.dp={}", ranks),
      "parallel.zero=0",
      "recompute=none"};
  scaling.steps = kSteps;
  scaling.record = true;
  plan::RankRecording out;
  double least = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const train::ScalingBench bench =
        measure_ranks(scaling, ranks, static_cast<int>(threads / ranks));
    plan::RunTrace trace = plan::parse_trace(dump_json(bench.trace), "the trace of rank 0");
    const double spread = plan::step_spread(trace);
    if (attempt == 0 || bench.step_seconds < least) {
      least = bench.step_seconds;
      out.trace = std::move(trace);
      out.exposed_seconds = bench.exposed_seconds;
      out.waiting_seconds = bench.waiting_seconds;
      out.communication_seconds = bench.communication_seconds;
    }
    if (spread <= plan::kQuietSpread) break;
  }
  out.recipe = recipe_of_ranks(scaling, ranks);
  return out;
}

std::vector<int64_t> probed_ranks(int64_t threads) {
  std::vector<int64_t> out;
  for (int64_t ranks = 2; ranks <= std::min(threads, kMostRanks); ++ranks) {
    if (threads % ranks == 0) out.push_back(ranks);
  }
  return out;
}

}  // namespace tutti::cli
