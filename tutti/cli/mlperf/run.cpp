#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/cli/mlperf/common.h"
#include "tutti/cli/mlperf/set_runner.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/memory_check.h"
#include "tutti/data/corpus/format.h"
#include "tutti/launch/home.h"
#include "tutti/mlperf/run_set.h"
#include "tutti/mlperf/submission.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/teacher.h"
#include "tutti_version.h"

namespace tutti::cli {
namespace {

struct MlperfRunArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::vector<std::string> with;
  int64_t runs = 0;  // 0: as many as the benchmark's rules want
  std::optional<uint64_t> seed_base;
  std::string out;
  std::string ruleset;
  mlperf::SubmissionFacts facts;
  std::vector<std::string> fields;
  bool json = false;
};

// The facts of one corpus for people, from its meta file where it has one.
std::string corpus_fact(FileSystem& files, const std::string& prefix) {
  const std::string path = data::corpus_paths(prefix).meta;
  if (!files.exists(path)) return prefix;
  const Json meta = Json::parse(read_file(files, path), nullptr, false);
  if (!meta.is_object()) return prefix;
  return fmt::format("{}: {} tokens, XXH3 {}", prefix, meta.value("tokens", Json()).dump(),
                     meta.value("bin_xxh3", Json()).dump());
}

mlperf::Submission describe_submission(FileSystem& files, const SetPaths& paths,
                                       const mlperf::RunSet& set, const spec::Recipe& recipe,
                                       const mlperf::SubmissionFacts& facts,
                                       const std::string& benchmark) {
  mlperf::Submission out;
  out.folder = paths.submission();
  out.benchmark = benchmark;
  out.facts = facts;
  out.binary = describe_binary();
  out.system = mlperf::system_description(describe_host(paths.out), out.binary, facts);
  out.recipe_yaml = set.recipe_yaml;
  for (const spec::CorpusBlend* blend : {&recipe.data.train, &recipe.data.validation}) {
    for (const spec::CorpusShare& corpus : blend->corpora) {
      out.corpora.push_back(corpus.prefix);
      out.corpus_facts.push_back(corpus_fact(files, corpus.prefix));
    }
  }
  for (size_t i = 0; i < set.runs.size(); ++i) {
    if (set.runs[i].progress == mlperf::RunProgress::planned) continue;
    out.runs.emplace_back(set.runs[i].seed, paths.log(i));
  }
  return out;
}

// What the options leave open, from the recipe, which says the same in the logs.
mlperf::SubmissionFacts complete_facts(const MlperfRunArguments& arguments,
                                       const spec::MlperfConfig& settings) {
  mlperf::SubmissionFacts facts = arguments.facts;
  facts.version = TUTTI_VERSION;
  facts.submitter = settings.organization;
  facts.division = settings.division;
  facts.status = settings.status;
  facts.system_name = settings.platform;
  if (facts.system_name.empty()) {
    const HostSheet host = describe_host(".");
    facts.system_name = fmt::format("{}x {}", host.sockets, host.processor);
  }
  for (const std::string& field : arguments.fields) {
    const size_t equals = field.find('=');
    if (equals == std::string::npos) {
      fail(ErrorKind::usage, "--field: '{}' is not FIELD=VALUE, such as cooling=air", field);
    }
    facts.fields.emplace_back(field.substr(0, equals), field.substr(equals + 1));
  }
  return facts;
}

// The recipe with what the options say about the submission, as its logs shall say it.
std::vector<std::string> overrides_of(FileSystem& files, const MlperfRunArguments& arguments) {
  std::vector<std::string> out = launch::all_overrides(files, arguments.with, arguments.overrides);
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) out.push_back(fmt::format("mlperf.{}={}", key, dump_json(value)));
  };
  set("organization", arguments.facts.submitter);
  set("platform", arguments.facts.system_name);
  set("division", arguments.facts.division);
  set("status", arguments.facts.status);
  return out;
}

int run_set(const MlperfRunArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::string path = launch::find_recipe(files, arguments.recipe);
  spec::Recipe recipe = spec::parse_recipe(
      read_file(files, path), path, overrides_of(files, arguments), launch::models_folder(files));
  train::resolve_teacher(object::file_system(), recipe);
  if (arguments.seed_base) recipe.train.seed = *arguments.seed_base;
  const std::string yaml = spec::to_yaml(recipe);
  const std::string& benchmark = recipe.mlperf.benchmark;
  if (benchmark.empty()) {
    fail(ErrorKind::usage,
         "'{}' has no mlperf.benchmark, so its runs write no MLPerf log; take one of "
         "recipes/mlperf/, or set mlperf.benchmark=NAME",
         path);
  }
  spec::check_executable(recipe);
  check_memory(recipe);
  const mlperf::SubmissionFacts facts = complete_facts(arguments, recipe.mlperf);
  mlperf::system_description({}, {}, facts);  // refuses wrong fields before the first run

  const auto known = mlperf_benchmarks();
  const auto* rules = catalog::find_benchmark(known, benchmark);
  const int64_t required = rules != nullptr ? rules->runs_per_result : 0;
  const int64_t runs = arguments.runs > 0 ? arguments.runs : required;
  if (runs == 0) {
    fail(ErrorKind::usage, "--runs: the catalog has no run count for '{}'; set it", benchmark);
  }
  SetPaths paths{arguments.out};
  if (paths.out.empty()) {
    std::string stem(base_name(path));
    if (const size_t dot = stem.find_last_of('.'); dot != std::string::npos) stem.resize(dot);
    paths.out = join_path("runs", "mlperf-" + stem);
  }
  const mlperf::Ruleset& ruleset = ruleset_for(arguments.ruleset, paths.submission(), rules);

  watch_signals();
  files.create_directories(paths.out);
  const ProcessLock lock(join_path(paths.out, "lock"));
  if (!lock.held()) {
    fail(ErrorKind::usage,
         "'{}' is in use: a set of runs works there, or its last run is still ending", paths.out);
  }
  mlperf::RunSet set = mlperf::plan_runs(yaml, runs, recipe.train.seed);
  set.version = TUTTI_VERSION;
  set.executable_hash = describe_binary().executable_hash;
  if (const auto stored = mlperf::load_run_set(files, paths.set())) {
    mlperf::check_same_set(*stored, set, paths.set());
    set = *stored;
  }
  mlperf::save_run_set(files, paths.set(), set);
  write_file_atomic(files, paths.recipe(), yaml);

  if (!execute_set(files, paths, set, recipe.train.steps)) {
    print_message(fmt::format("{} of {} runs are done and kept; the same command continues\n",
                              set.ended(), runs));
    if (arguments.json) print_json({{"complete", false}, {"set", mlperf::to_json(set)}});
    return exit_requeue;
  }
  mlperf::write_submission(files, describe_submission(files, paths, set, recipe, facts, benchmark));
  mlperf::ComplianceCheck check;
  mlperf::check_path(files, paths.submission(), ruleset, known, check);
  const auto scores = mlperf_scores({paths.submission()}, ruleset.version);
  const std::string text = format_check(check, {ruleset.version}) + format_scores(scores) +
                           fmt::format("The submission is in {}\n", paths.submission());
  const bool scored = std::all_of(scores.begin(), scores.end(), [](const mlperf::Score& score) {
    return score.minutes.has_value();
  });
  if (arguments.json) {
    print_message(text);
    Json score = Json::array();
    for (const mlperf::Score& s : scores) score.push_back(mlperf::to_json(s));
    print_json({{"complete", true},
                {"submission", paths.submission()},
                {"check", check_json(check, {ruleset.version})},
                {"scores", std::move(score)},
                {"set", mlperf::to_json(set)}});
  } else {
    print_text(text);
  }
  return scored && mlperf::compliant(check.findings) ? exit_ok : exit_failed;
}

}  // namespace

void add_mlperf_run(CLI::App& group, Action& action) {
  CLI::App* run = group.add_subcommand("run", "Run all runs of a result, one seed after the other");
  const auto arguments = std::make_shared<MlperfRunArguments>();
  arguments->facts.division.clear();
  arguments->facts.status.clear();
  run->add_option("RECIPE", arguments->recipe, "Recipe with mlperf.benchmark: a file or a name")
      ->required();
  run->add_option("SETTING", arguments->overrides, "KEY=VALUE: override a key of the recipe");
  run->add_option("--with", arguments->with,
                  "YAML of further keys, which override the recipe's; KEY=VALUE overrides both")
      ->type_name("FILE")
      ->allow_extra_args(false);
  run->add_option("--runs", arguments->runs,
                  "Number of runs; default as the benchmark's rules require")
      ->check(at_least(1));
  run->add_option("--seed-base", arguments->seed_base,
                  "Seed of the first run, incremented for each further one; default train.seed");
  run->add_option("--out", arguments->out, "Folder of the set; default runs/mlperf-RECIPE")
      ->type_name("FOLDER");
  run->add_option("--submitter", arguments->facts.submitter, "Default mlperf.organization");
  run->add_option("--system-name", arguments->facts.system_name,
                  "Default mlperf.platform, or the processor");
  run->add_option("--division", arguments->facts.division, "closed or open");
  run->add_option("--status", arguments->facts.status, "onprem, cloud, preview or research");
  run->add_option("--field", arguments->fields,
                  "FIELD=VALUE of the system description, such as cooling=air");
  run->add_option("--ruleset", arguments->ruleset, "As in check; default the newest");
  add_json_option(*run, arguments->json);
  run->footer(
      "The set is fixed before its first run; all runs are kept and recorded in runs.json. After\n"
      "Ctrl-C (exit code 75) the same command continues: finished runs stay, the interrupted one "
      "is\n"
      "repeated with its seed. After the last run FOLDER/submission is written, checked and\n"
      "scored: exit code 0 if it complies and has a score, 1 if not.\n\n"
      "Example:\n  tutti mlperf run mlperf/llama31-8b --submitter Me --system-name my-box");
  run->callback([arguments, &action] { action = [arguments] { return run_set(*arguments); }; });
}

}  // namespace tutti::cli
