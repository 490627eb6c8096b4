#include "tutti/cli/train/dry_run.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/mlperf/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/start_check.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/mlperf/check_log.h"
#include "tutti/optim/learning_rate.h"
#include "tutti/spec/recipe/describe.h"
#include "tutti/spec/recipe/mlperf_settings.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/schedule/schedule.h"
#include "tutti/telemetry/sinks/mlperf_log.h"

namespace tutti::cli {
namespace {

using telemetry::MlperfLine;

// The steps at which a schedule shows its form.
std::set<int64_t> telling_steps(const spec::Recipe& recipe) {
  const spec::ScheduleConfig& schedule = recipe.schedule;
  std::set<int64_t> steps;
  for (const int64_t step : {int64_t{0}, int64_t{1}, schedule.warmup_steps - schedule.start_step,
                             schedule.decay_steps - schedule.start_step, recipe.train.steps - 1}) {
    if (0 <= step && step < recipe.train.steps) steps.insert(step);
  }
  return steps;
}

double rate_at(const spec::Recipe& recipe, int64_t step) {
  return optim::learning_rate(recipe.optimizer.learning_rate, recipe.schedule, recipe.train.steps,
                              step);
}

// Log lines that are being collected.
struct Lines {
  void add(MlperfLine::Type type, const std::string& key, const Json& value = nullptr,
           const Json& metadata = Json::object()) {
    all.push_back(
        telemetry::format_mlperf_line({type, key, value, metadata, "recipe", 0}, wall_seconds()));
  }
  std::vector<std::string> all;
};

struct LogPreview {
  std::vector<std::string> header;
  std::string ruleset;
  std::vector<mlperf::Finding> findings;
};

// Of the first evaluation.
int64_t samples_evaluated_first(const spec::Recipe& recipe) {
  const int64_t every = std::max<int64_t>(1, spec::evaluation_interval(recipe));
  const int64_t step = every * (recipe.evaluate.skip_first + 1);
  return std::min(step, recipe.train.steps) * recipe.batch.global;
}

// What the run would log before it trains; the rest of the log, as if it then reached its target at
// the first evaluation, lets the checker judge the recipe's values and nothing else.
LogPreview preview_log(const spec::Recipe& recipe) {
  using Type = MlperfLine::Type;
  const auto benchmarks = mlperf_benchmarks();
  const catalog::Benchmark* benchmark =
      catalog::find_benchmark(benchmarks, recipe.mlperf.benchmark);
  if (benchmark == nullptr) {
    std::vector<std::string> known;
    known.reserve(benchmarks.size());
    for (const catalog::Benchmark& each : benchmarks) known.push_back(each.name);
    fail(ErrorKind::usage, "mlperf.benchmark: '{}' is unknown; known: {}", recipe.mlperf.benchmark,
         join(known, ", "));
  }
  LogPreview preview;
  Lines log;
  log.add(Type::point, "cache_clear", true);
  log.add(Type::start, "init_start");
  for (const auto& [key, value] : spec::mlperf_submission(recipe, "this machine")) {
    log.add(Type::point, key, value);
  }
  for (const auto& [key, value] : spec::mlperf_settings(recipe)) log.add(Type::point, key, value);
  preview.header = log.all;

  const Json start = {{"samples_count", 0}, {"first_epoch_num", 0}, {"epoch_count", 1}};
  const int64_t samples = samples_evaluated_first(recipe);
  const Json stop = {{"samples_count", samples}, {"first_epoch_num", 0}, {"epoch_num", samples}};
  log.add(Type::end, "init_stop");
  log.add(Type::start, "run_start");
  log.add(Type::start, "block_start", nullptr, start);
  log.add(Type::point, "train_samples", 1);
  log.add(Type::point, "eval_samples", recipe.evaluate.samples);
  log.add(Type::end, "block_stop", nullptr, stop);
  log.add(Type::start, "eval_start", nullptr, stop);
  log.add(Type::point, "eval_accuracy", *recipe.train.target_validation_loss, stop);
  log.add(Type::end, "eval_stop", nullptr, stop);
  log.add(Type::end, "run_stop", nullptr, Json{{"status", "success"}, {"samples_count", samples}});
  // Corpora are not read.
  log.add(Type::point, "train_corpus_xxh3", benchmark->train_corpus_xxh3);
  log.add(Type::point, "validation_corpus_xxh3", benchmark->validation_corpus_xxh3);

  const mlperf::Ruleset& ruleset = ruleset_for("", "", benchmark);
  preview.ruleset = ruleset.version;
  preview.findings = mlperf::check_log_text(join(log.all, "\n") + "\n", "log", ruleset).findings;
  return preview;
}

std::string rank_text(const spec::RankClass& ranks) {
  std::string arenas;
  for (const spec::ArenaPlan& arena : ranks.memory.arenas) {
    arenas += (arenas.empty() ? "" : ", ") + arena.name + " " +
              format_bytes(static_cast<double>(arena.bytes));
  }
  const int64_t host = ranks.memory.host_bytes();
  return fmt::format(
      "{}{} ({})", format_bytes(static_cast<double>(ranks.memory.total_bytes())),
      host == 0 ? "" : " and " + format_bytes(static_cast<double>(host)) + " in memory of the host",
      arenas);
}

void print_description(const spec::Recipe& recipe, const spec::Run& run) {
  const auto count = [](double value) { return format_count(value); };
  const spec::Mesh& mesh = recipe.parallel;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"parameters", count(static_cast<double>(run.params.count()))},
      {"trained", count(static_cast<double>(run.params.trainable_count()))},
      {"FLOPs per token", count(spec::model_flops_per_token(recipe))},
      {"FLOPs per step", count(spec::model_flops_per_step(recipe))},
      {"tokens per step", count(static_cast<double>(run.batch.tokens_per_step()))},
      {"ranks", fmt::format("{}: dp {}, tp {}, pp {}, cp {}, ep {}, zero {}", mesh.world(), mesh.dp,
                            mesh.tp, mesh.pp, mesh.cp, mesh.ep, mesh.zero)},
      {"schedule",
       fmt::format("{}, {} micro-batches per rank and step",
                   spec::name_of(spec::kPipelineNames, mesh.pipeline), run.schedule.micro_batches)},
      {"steps",
       fmt::format("{}, evaluation every {}, the first {} of them skipped", recipe.train.steps,
                   run.schedule.evaluate_every_steps, run.schedule.evaluate_skip_first)}};
  for (const spec::RankClass& ranks : run.memory) {
    const std::string stages =
        ranks.first_stage == ranks.last_stage
            ? fmt::format("stage {}", ranks.first_stage)
            : fmt::format("stages {}-{}", ranks.first_stage, ranks.last_stage);
    rows.emplace_back(fmt::format("memory, {} of {}", ranks.ranks, stages), rank_text(ranks));
  }
  for (const int64_t step : telling_steps(recipe)) {
    rows.emplace_back(fmt::format("learning rate, step {}", step),
                      fmt::format("{:.6g}", rate_at(recipe, step)));
  }
  print_text(format_pairs(rows));
}

Json to_json(const spec::Recipe& recipe, const spec::Run& run) {
  Json memory = Json::array();
  for (const spec::RankClass& ranks : run.memory) {
    Json arenas = Json::object();
    for (const spec::ArenaPlan& arena : ranks.memory.arenas) arenas[arena.name] = arena.bytes;
    memory.push_back({{"first_stage", ranks.first_stage},
                      {"last_stage", ranks.last_stage},
                      {"ranks", ranks.ranks},
                      {"bytes", ranks.memory.total_bytes()},
                      {"host_bytes", ranks.memory.host_bytes()},
                      {"arenas", arenas}});
  }
  Json rates = Json::array();
  for (const int64_t step : telling_steps(recipe)) {
    rates.push_back({{"step", step}, {"learning_rate", rate_at(recipe, step)}});
  }
  return {{"parameters", run.params.count()},
          {"trainable_parameters", run.params.trainable_count()},
          {"flops_per_token", spec::model_flops_per_token(recipe)},
          {"flops_per_step", spec::model_flops_per_step(recipe)},
          {"tokens_per_step", run.batch.tokens_per_step()},
          {"ranks", recipe.parallel.world()},
          {"micro_batches", run.schedule.micro_batches},
          {"evaluate_every_steps", run.schedule.evaluate_every_steps},
          {"memory", memory},
          {"memory_bytes_per_rank", run.peak_bytes()},
          {"learning_rates", rates}};
}

// The error that a check ends with; null: it finds nothing.
template <typename Check>
std::optional<Error> problem_of(const Check& check) {
  try {
    check();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace

int dry_run(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder,
            bool json) {
  const spec::Run run = spec::describe(recipe);
  Json result = to_json(recipe, run);
  if (!json) print_description(recipe, run);
  const auto data_problem = problem_of([&] { launch::check_corpora(files, recipe); });
  if (data_problem) result["data_problem"] = data_problem->what();
  const auto start_problem = problem_of([&] { check_start(files, recipe, run_folder); });
  if (start_problem) result["start_problem"] = start_problem->what();
  bool compliant = true;
  if (recipe.mlperf.enabled()) {
    const LogPreview preview = preview_log(recipe);
    compliant = mlperf::compliant(preview.findings);
    Json findings = Json::array();
    for (const mlperf::Finding& finding : preview.findings) {
      findings.push_back(mlperf::to_json(finding));
    }
    result["mlperf"] = Json{{"lines", preview.header},
                            {"ruleset", preview.ruleset},
                            {"compliant", compliant},
                            {"findings", findings}};
    if (!json) {
      std::string text = "\n" + join(preview.header, "\n") + "\n\n";
      for (const mlperf::Finding& finding : preview.findings) {
        text += mlperf::format_finding(finding) + "\n";
      }
      text += fmt::format("hyperparameters {} by ruleset {}\n",
                          compliant ? "compliant" : "not compliant", preview.ruleset);
      print_text(text);
    }
  }
  if (json) print_json(result);
  // The rules of a benchmark are checked also where neither its data nor its first checkpoint are.
  for (const auto& problem : {data_problem, start_problem}) {
    if (!problem) continue;
    print_message(fmt::format("tutti: {}: {}\n", recipe.mlperf.enabled() ? "warning" : "error",
                              problem->what()));
    if (!recipe.mlperf.enabled()) return exit_code(problem->kind());
  }
  return compliant ? exit_ok : exit_failed;
}

}  // namespace tutti::cli
