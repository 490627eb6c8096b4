#include "tutti/plan/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/base/round_up.h"

namespace tutti::plan {
namespace {

// Samples that the reference trained at `point`, without the wait for its next evaluation.
double converged(const catalog::Benchmark& benchmark, const catalog::ReferencePoint& point) {
  const std::vector<double>& runs = point.samples_per_run;  // ascending, three or more
  double sum = 0;
  for (size_t i = 1; i + 1 < runs.size(); ++i) sum += runs[i];
  const int64_t interval = round_up(benchmark.eval_interval_samples, point.global_batch_samples);
  return sum / real(static_cast<int64_t>(runs.size()) - 2) - real(interval) / 2;
}

const catalog::ReferenceSet& set_of(const catalog::Benchmark& benchmark,
                                    const std::string& ruleset) {
  if (benchmark.reference_sets.empty()) {
    fail(ErrorKind::usage, "--benchmark: {} has no reference convergence", benchmark.name);
  }
  if (ruleset.empty()) return benchmark.reference_sets.back();
  const catalog::ReferenceSet* set = catalog::find_reference_set(benchmark, ruleset);
  if (set != nullptr) return *set;
  std::string known;
  for (const catalog::ReferenceSet& each : benchmark.reference_sets) {
    for (const std::string& name : each.rulesets) known += (known.empty() ? "" : ", ") + name;
  }
  fail(ErrorKind::usage, "--ruleset: {} has no reference points for '{}'; accepted: {}",
       benchmark.name, ruleset, known);
}

}  // namespace

double evaluation_seconds(const spec::Recipe& recipe, const StepPrediction& step,
                          const Constants& constants, int64_t samples) {
  const spec::Mesh& mesh = recipe.parallel;
  const int64_t round = mesh.dp * recipe.batch.micro;
  return constants[Constant::evaluation_start_seconds] +
         step.forward_seconds_per_micro_batch *
             real(round_up(samples, round) / round + mesh.pp - 1);
}

TargetForecast forecast_target(const catalog::Benchmark& benchmark, const std::string& ruleset,
                               const spec::Recipe& recipe, const StepPrediction& step,
                               const Constants& constants) {
  if (recipe.batch.sequence != benchmark.sequence_tokens) {
    fail(ErrorKind::usage, "batch.sequence: {} is not the {} of benchmark {}",
         recipe.batch.sequence, benchmark.sequence_tokens, benchmark.name);
  }
  const catalog::ReferenceSet& set = set_of(benchmark, ruleset);
  const int64_t batch = recipe.batch.global;
  const auto above = std::find_if(set.points.begin(), set.points.end(), [&](const auto& point) {
    return point.global_batch_samples >= batch;
  });
  if (above == set.points.end()) {
    fail(ErrorKind::usage,
         "batch.global: {} is beyond {}, the largest batch with reference convergence of {}", batch,
         set.points.back().global_batch_samples, benchmark.name);
  }
  TargetForecast out;
  out.benchmark = benchmark.name;
  double samples = converged(benchmark, *above);
  out.basis = fmt::format("reference point {}", above->global_batch_samples);
  if (above != set.points.begin() && above->global_batch_samples != batch) {
    const catalog::ReferencePoint& below = *(above - 1);
    const double share = real(batch - below.global_batch_samples) /
                         real(above->global_batch_samples - below.global_batch_samples);
    const double low = converged(benchmark, below);
    samples = low + share * (samples - low);
    out.basis = fmt::format("reference points {} and {}", below.global_batch_samples,
                            above->global_batch_samples);
  }
  out.basis += " of ruleset " + (ruleset.empty() ? set.rulesets.back() : ruleset);
  out.interval_samples = round_up(std::max<int64_t>(benchmark.eval_interval_samples, 1), batch);
  const double interval = real(out.interval_samples);
  out.samples = std::max(samples + interval / 2, interval);
  out.first_samples =
      out.interval_samples * static_cast<int64_t>(std::floor(out.samples / interval));
  out.last_samples = out.interval_samples * static_cast<int64_t>(std::ceil(out.samples / interval));
  out.steps = out.samples / real(batch);
  const double skipped =
      std::floor(benchmark.eval_skip_per_batch * real(batch) + benchmark.eval_skip);
  out.evaluations = std::max(1.0, out.samples / interval - skipped);
  out.evaluation_seconds = evaluation_seconds(recipe, step, constants, benchmark.eval_samples);
  out.work_seconds = constants[Constant::run_start_seconds] + out.steps * step.step_seconds +
                     out.evaluations * out.evaluation_seconds;
  return out;
}

Json to_json(const TargetForecast& forecast) {
  return {{"benchmark", forecast.benchmark},
          {"basis", forecast.basis},
          {"samples_to_target", forecast.samples},
          {"samples_between_evaluations", forecast.interval_samples},
          {"samples_at_evaluations", {forecast.first_samples, forecast.last_samples}},
          {"steps", forecast.steps},
          {"evaluations", forecast.evaluations},
          {"evaluation_seconds", forecast.evaluation_seconds},
          {"work_seconds", forecast.work_seconds}};
}

}  // namespace tutti::plan
