#include "tutti/mlperf/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/mlperf/statistics.h"

namespace tutti::mlperf {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Published factors are below 1.2; a result that converges in a tenth of the reference's samples
// has failed its test.
constexpr double kLargestScale = 10;
constexpr double kShownSeconds = 0.05;  // less is jitter, and is printed as 0.0

ScoredRun read_run(FileSystem& files, const std::string& path, const Ruleset& ruleset) {
  LogCheck check = check_log(files, path, ruleset);
  ScoredRun run;
  run.file = path;
  run.compliant = check.compliant;
  run.run = std::move(check.run);
  run.findings = std::move(check.findings);
  const auto minutes = run.run.minutes();
  run.converged = run.compliant && run.run.status == "success" && minutes &&
                  run.run.progress_to_target.has_value();
  if (run.converged) run.minutes = *minutes;
  return run;
}

// The first value that a run says, and whether another run says another one.
template <typename Value>
Value common(const std::vector<ScoredRun>& runs, Value Run::*member, const char* what,
             std::vector<std::string>& notes) {
  Value value{};
  bool mixed = false;
  for (const ScoredRun& run : runs) {
    const Value& own = run.run.*member;
    if (own == Value{}) continue;
    if (value == Value{}) value = own;
    else mixed = mixed || own != value;
  }
  if (mixed) {
    notes.push_back(fmt::format("runs have different {}", what));
    return Value{};
  }
  return value;
}

// The olympic mean of values of which those of failed runs are infinite; none when that leaves
// nothing. `counted` gets the indices behind it.
std::optional<double> olympic(const std::vector<double>& values, std::vector<size_t>* counted) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] < values[b]; });
  if (values.size() >= 3) order = {order.begin() + 1, order.end() - 1};
  double sum = 0;
  for (const size_t i : order) sum += values[i];
  if (order.empty() || std::isinf(sum)) return std::nullopt;
  if (counted != nullptr) *counted = order;
  return sum / static_cast<double>(order.size());
}

void score_times(Score& score) {
  std::vector<double> minutes;
  std::vector<double> samples;
  for (const ScoredRun& run : score.runs) {
    minutes.push_back(run.converged ? run.minutes : kInfinity);
    samples.push_back(run.converged ? run.samples_to_target : kInfinity);
  }
  std::vector<size_t> counted;
  score.raw_minutes = olympic(minutes, &counted);
  score.samples_to_target = olympic(samples, nullptr);
  for (const size_t i : counted) score.runs[i].counted = true;
  const auto failed = static_cast<int64_t>(score.runs.size()) - score.converged_runs;
  if (failed == 1 && score.raw_minutes) {
    score.notes.emplace_back("one run did not converge or comply: it is the dropped slowest");
  } else if (failed > 0 && !score.raw_minutes) {
    score.notes.push_back(fmt::format("{} of {} runs did not converge or comply: no score", failed,
                                      score.runs.size()));
  }
  const auto runs = static_cast<int64_t>(score.runs.size());
  if (score.required_runs > 0 && runs != score.required_runs) {
    score.notes.push_back(fmt::format("{} runs, {} are required: not an official score{}", runs,
                                      score.required_runs, runs < 3 ? "; plain mean" : ""));
  }
}

// Start-up is what steady steps and evaluations leave of a run's time: less than nothing is left
// where the steady rate is estimated too low.
void note_hidden_startup(Score& score) {
  int64_t runs = 0;
  double most = 0;
  for (const ScoredRun& run : score.runs) {
    if (!run.timeline || !(run.timeline->startup_seconds < -kShownSeconds)) continue;
    ++runs;
    most = std::max(most, -run.timeline->startup_seconds);
  }
  if (runs == 0) return;
  score.notes.push_back(fmt::format(
      "in {} of {} runs steady steps and evaluations add up to more than the run took, by up to "
      "{:.1f} s: the steady rate is too low by that much, and start-up is not known",
      runs, score.converged_runs, most));
}

void score_scale(FileSystem& files, const ResultFolder& folder, const catalog::Benchmark* benchmark,
                 const std::string& division, Score& score) {
  if (benchmark != nullptr && score.samples_to_target && score.global_batch_samples &&
      division != "open") {
    score.reference = test_reference(*benchmark, score.ruleset, *score.global_batch_samples,
                                     *score.samples_to_target);
  } else {
    score.reference.basis = division == "open" ? "the open division has no convergence test"
                                               : "no samples to target or no batch size";
  }
  if (score.reference.below_smallest) {
    score.notes.push_back(
        fmt::format("batch {} is below the smallest reference point: tested "
                    "against the {}",
                    *score.global_batch_samples, score.reference.basis));
  }
  score.scale_source = "none";
  if (score.reference.pass && score.reference.scale > 1) {
    if (score.ruleset < "4") {
      score.notes.push_back(fmt::format(
          "faster than the reference by {:.4f}: results of rounds 3.0 and 3.1 were not scaled",
          score.reference.scale));
    } else {
      score.scale = score.reference.scale;
      score.scale_source = "recomputed";
    }
  }
  if (folder.scaling_file.empty()) return;
  const Json json = Json::parse(read_file(files, folder.scaling_file), nullptr, false);
  const auto found = json.is_object() ? json.find("scaling_factor") : json.end();
  const bool number = found != json.end() && found->is_number();
  if (!number || !(found->get<double>() >= 1) || found->get<double>() > kLargestScale) {
    score.scaling_problem =
        !number ? "it holds no number scaling_factor"
        : found->get<double>() > kLargestScale
            ? fmt::format("scaling_factor is {}; none is above {}", found->get<double>(),
                          kLargestScale)
            : fmt::format("scaling_factor is {}; results are only ever scaled up, by 1 or more",
                          found->get<double>());
    score.notes.push_back("scaling.json: " + score.scaling_problem + ": no score");
    score.scale_source = "none";
    score.scale = 1;
    return;
  }
  const auto factor = found->get<double>();
  if (std::abs(factor - score.scale) > 1e-6 * factor) {
    score.notes.push_back(
        fmt::format("scaling.json says {}, recomputed is {}", factor, score.scale));
  }
  score.scale = factor;
  score.scale_source = "scaling.json";
}

Json number_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json run_json(const ScoredRun& run) {
  return {
      {"file", run.file},
      {"compliant", run.compliant},
      {"converged", run.converged},
      {"counted", run.counted},
      {"minutes", run.converged ? Json(run.minutes) : Json(nullptr)},
      {"samples_to_target", run.converged ? Json(run.samples_to_target) : Json(nullptr)},
      {"evaluations", run.run.evaluations.size()},
      {"step_seconds", run.timeline && run.timeline->step_seconds > 0
                           ? Json(run.timeline->step_seconds)
                           : Json(nullptr)},
      {"steps_timed", run.timeline && run.timeline->steps_timed},
      {"evaluation_seconds", run.timeline && run.timeline->evaluations_timed
                                 ? Json(run.timeline->evaluation_seconds)
                                 : Json(nullptr)},
      {"startup_seconds", run.timeline ? Json(run.timeline->startup_seconds) : Json(nullptr)},
      {"initialisation_seconds", number_json(run.run.initialisation_seconds())},
      {"seed", run.run.seeds.empty() || !run.run.seeds[0].value ? Json(nullptr)
                                                                : Json(*run.run.seeds[0].value)}};
}

}  // namespace

Score score_result(FileSystem& files, const ResultFolder& folder, const Ruleset& ruleset,
                   const std::vector<catalog::Benchmark>& benchmarks) {
  Score score;
  score.path = folder.path;
  score.ruleset = ruleset.version;
  score.round = round_of(folder.path);
  for (const std::string& log : folder.logs) score.runs.push_back(read_run(files, log, ruleset));
  score.benchmark = common(score.runs, &Run::benchmark, "benchmarks", score.notes);
  score.global_batch_samples =
      common(score.runs, &Run::global_batch_samples, "global batch sizes", score.notes);
  const std::string division = common(score.runs, &Run::division, "divisions", score.notes);
  const catalog::Benchmark* benchmark =
      score.benchmark.empty() ? nullptr : catalog::find_benchmark(benchmarks, score.benchmark);
  score.required_runs = benchmark != nullptr ? benchmark->runs_per_result : 0;
  const bool tokens =
      benchmark != nullptr && benchmark->logged_progress == catalog::Progress::tokens;
  for (ScoredRun& run : score.runs) {
    if (!run.converged) continue;
    ++score.converged_runs;
    const double per_sample = tokens ? static_cast<double>(benchmark->sequence_tokens) : 1.0;
    run.samples_to_target = *run.run.progress_to_target / per_sample;
    run.timeline = timeline_of(run.run, per_sample);
  }
  score_times(score);
  note_hidden_startup(score);
  score_scale(files, folder, benchmark, division, score);
  if (score.raw_minutes && score.scaling_problem.empty()) {
    score.minutes = *score.raw_minutes * score.scale;
  }
  if (!folder.system_file.empty()) {
    score.system = check_system(files, folder.system_file, ruleset).description;
  }
  return score;
}

bool official(const Score& score) {
  return score.minutes && (score.required_runs == 0 ||
                           static_cast<int64_t>(score.runs.size()) >= score.required_runs);
}

Json to_json(const Score& score) {
  Json runs = Json::array();
  for (const ScoredRun& run : score.runs) runs.push_back(run_json(run));
  const ReferenceTest& reference = score.reference;
  const auto known = [&](double value) { return reference.known ? Json(value) : Json(nullptr); };
  const auto accelerators = score.system.accelerators();
  return {{"path", score.path},
          {"ruleset", score.ruleset},
          {"benchmark", score.benchmark},
          {"submitter", score.system.submitter},
          {"system", score.system.system_name},
          {"accelerator", score.system.accelerator},
          {"accelerators", accelerators ? Json(*accelerators) : Json(nullptr)},
          {"global_batch_samples", number_json(score.global_batch_samples)},
          {"minutes", number_json(score.minutes)},
          {"raw_minutes", number_json(score.raw_minutes)},
          {"scale", score.scale},
          {"scale_source", score.scale_source},
          {"samples_to_target", number_json(score.samples_to_target)},
          {"required_runs", score.required_runs},
          {"converged_runs", score.converged_runs},
          {"runs", std::move(runs)},
          {"rcp",
           {{"pass", known(0).is_null() ? Json(nullptr) : Json(reference.pass)},
            {"scale", reference.scale},
            {"reference_samples", known(reference.reference_samples)},
            {"least_samples", known(reference.least_samples)},
            {"basis", reference.basis}}},
          {"notes", score.notes}};
}

void note_ruleset(bool asked, Score& score) {
  if (score.round.empty()) {
    if (asked) return;
    score.notes.push_back(fmt::format(
        "no round in the path: scored by {}, the newest rules of {}; name others with --ruleset",
        score.ruleset, score.benchmark.empty() ? "the benchmark" : score.benchmark));
  } else if (ruleset_of_round(score.round) != score.ruleset) {
    score.notes.push_back(fmt::format("the path names round {}: scored by the rules {} as asked",
                                      score.round, score.ruleset));
  }
}

std::string newest_ruleset(const catalog::Benchmark& benchmark) {
  const auto versions = ruleset_versions();
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    if (find_rules(find_ruleset(*version), benchmark.name, "closed") != nullptr) return *version;
  }
  return {};
}

}  // namespace tutti::mlperf
