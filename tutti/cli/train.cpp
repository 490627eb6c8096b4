#include <memory>
#include <string>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/reader.h"
#include "tutti/cli/commands.h"
#include "tutti/cli/common.h"
#include "tutti/cli/home.h"
#include "tutti/cli/resume.h"
#include "tutti/cli/run_page.h"
#include "tutti/cli/tokenizer.h"
#include "tutti/cli/train_dry_run.h"
#include "tutti/spec/flops.h"
#include "tutti/spec/memory.h"
#include "tutti/telemetry/jsonl.h"
#include "tutti/telemetry/mlperf_log.h"
#include "tutti/telemetry/prometheus.h"
#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/tensorboard.h"
#include "tutti/telemetry/terminal.h"
#include "tutti/train/interchange.h"
#include "tutti/train/run_folder.h"
#include "tutti/train/session.h"
#include "tutti/train/teacher.h"

namespace tutti::cli {
namespace {

struct TrainArguments {
  std::string target;
  std::vector<std::string> overrides;
  std::vector<std::string> with;
  std::string run;
  int64_t trace_steps = 0;
  int64_t stop_after_step = 0;
  int64_t processes = 1;
  bool dry_run = false;
  int parent = 0;  // process that must not die before this one; 0: any may
  bool json = false;
};

struct Plan {
  spec::Recipe recipe;
  std::string run_folder;
};

spec::Recipe read_recipe(FileSystem& files, const std::string& path,
                         const std::vector<std::string>& overrides) {
  return spec::parse_recipe(read_file(files, path), path, overrides, models_folder(files));
}

// "runs/NAME" for a named run, else "runs/RECIPE-TIME".
std::string default_run_folder(const spec::Recipe& recipe, const std::string& path) {
  if (!recipe.run.name.empty()) return join_path("runs", recipe.run.name);
  std::string stem(base_name(path));
  if (const size_t dot = stem.find_last_of('.'); dot != std::string::npos) stem.resize(dot);
  return join_path("runs", stem + "-" + format_utc_compact(wall_seconds()));
}

// An import has no optimizer state to go on from.
void check_not_import(FileSystem& files, const std::string& run_folder) {
  const std::string model = train::model_path(run_folder);
  if (!files.exists(model)) return;
  fail(ErrorKind::usage,
       "'{}' is an imported model, not a run to go on with; start a new run from it: tutti train "
       "RECIPE model={} checkpoint.initialize_from={}",
       run_folder, model, run_folder);
}

// The time of an MLPerf run is one stretch, from a fresh folder.
void check_not_started(FileSystem& files, const Plan& plan) {
  const std::string log = train::mlperf_log_path(plan.run_folder);
  if (!plan.recipe.mlperf.enabled() || !files.exists(log)) return;
  fail(ErrorKind::usage,
       "'{}' is there: an MLPerf run (mlperf.benchmark: {}) starts once and cannot go on; choose "
       "another folder (--run or run.name)",
       log, plan.recipe.mlperf.benchmark);
}

Plan make_plan(FileSystem& files, const TrainArguments& arguments) {
  Plan plan;
  const bool is_run =
      files.is_directory(arguments.target) && files.exists(train::recipe_path(arguments.target));
  const std::string path =
      is_run ? train::recipe_path(arguments.target) : find_recipe(files, arguments.target);
  plan.recipe = read_recipe(files, path, all_overrides(files, arguments.with, arguments.overrides));
  train::resolve_teacher(files, plan.recipe);
  if (is_run && !arguments.run.empty() && arguments.run != arguments.target) {
    fail(ErrorKind::usage, "--run: '{}' is not the run to resume, '{}'; drop one of the two",
         arguments.run, arguments.target);
  }
  if (is_run) {
    plan.run_folder = arguments.target;
  } else {
    plan.run_folder = arguments.run.empty() ? default_run_folder(plan.recipe, path) : arguments.run;
  }
  check_not_import(files, plan.run_folder);
  check_not_started(files, plan);
  const std::string stored = train::recipe_path(plan.run_folder);
  // Until its first checkpoint a run has nothing that another recipe could spoil.
  if (files.exists(stored) &&
      !checkpoint::list_checkpoints(files, train::checkpoints_path(plan.run_folder)).empty()) {
    check_resumable(read_recipe(files, stored, {}), plan.recipe, plan.run_folder);
  }
  if (plan.recipe.run.name.empty()) plan.recipe.run.name = base_name(plan.run_folder);
  return plan;
}

std::string recompute_line(const spec::Recipe& recipe) {
  const std::string text = spec::recompute_text(recipe.recompute);
  const int64_t freed = spec::bytes_freed_by_recompute(recipe);
  return freed == 0 ? text : text + ": " + format_bytes(static_cast<double>(freed)) + " less";
}

void print_plan(const Plan& plan, int64_t memory_bytes) {
  const spec::Recipe& recipe = plan.recipe;
  const spec::ParamTable table = spec::param_table(recipe.model, recipe.lora);
  std::string parameters = format_count(static_cast<double>(table.count()));
  if (recipe.lora.enabled()) {
    parameters += fmt::format(", {} of them trained",
                              format_count(static_cast<double>(table.trainable_count())));
  }
  if (recipe.distill.enabled()) {
    const auto teacher = static_cast<double>(spec::param_table(*recipe.distill.model).count());
    parameters += fmt::format(", and the teacher's {}", format_count(teacher));
  }
  const double flops = spec::model_flops_per_token(recipe);
  const auto tokens = static_cast<double>(recipe.batch.global * recipe.batch.sequence);
  print_message(spec::to_yaml(recipe));
  print_message(format_pairs({{"parameters", parameters},
                              {"FLOPs per token", format_count(flops)},
                              {"tokens per step", format_count(tokens)},
                              {"memory map", format_bytes(static_cast<double>(memory_bytes))},
                              {"recompute", recompute_line(recipe)},
                              {"run folder", plan.run_folder}}));
}

// A page that cannot be written is no reason for a run to fail.
void leave_page(FileSystem& files, const std::string& run_folder, telemetry::Telemetry& telemetry) {
  telemetry.flush();
  try {
    write_run_page(files, run_folder);
  } catch (const Error& error) {
    telemetry.warn(fmt::format("no report: {}", error.what()));
    telemetry.flush();
  }
}

// A run that diverged leaves its page too: that is the one to look at.
train::Summary train_and_draw(const Plan& plan, const train::SessionOptions& options,
                              FileSystem& files, telemetry::Telemetry& telemetry) {
  try {
    train::Summary summary = train::run_session(plan.recipe, options, files, telemetry);
    leave_page(files, plan.run_folder, telemetry);
    return summary;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::diverged) leave_page(files, plan.run_folder, telemetry);
    throw;
  }
}

int run_train(const TrainArguments& arguments) {
  FileSystem& files = posix_file_system();
  if (arguments.processes != 1) {
    fail(arguments.processes < 1 ? ErrorKind::usage : ErrorKind::unsupported,
         "--nproc: {} processes; this version trains in one process, on all cores of the machine",
         arguments.processes);
  }
  const Plan plan = make_plan(files, arguments);
  if (arguments.dry_run) {
    print_message(spec::to_yaml(plan.recipe));
    return dry_run(plan.recipe, arguments.json);
  }
  spec::check_executable(plan.recipe);
  const int64_t memory_bytes = spec::memory_map(plan.recipe).total_bytes();
  check_memory(memory_bytes);
  print_plan(plan, memory_bytes);
  keep_tokenizer(files, plan.recipe, plan.run_folder);
  train::keep_huggingface(files, plan.recipe, plan.run_folder);

  watch_signals();
  if (arguments.parent > 0 && !end_with_parent(arguments.parent)) {
    fail(ErrorKind::io, "--end-with-parent: process {} is gone", arguments.parent);
  }
  telemetry::Telemetry telemetry;
  files.create_directories(plan.run_folder);
  if (const spec::TelemetryConfig& config = plan.recipe.telemetry; config.metrics_port > 0) {
    telemetry.add(
        std::make_unique<telemetry::PrometheusSink>(config.metrics_address, config.metrics_port));
  }
  telemetry.add(std::make_unique<telemetry::TerminalSink>());
  telemetry.add(
      std::make_unique<telemetry::JsonLinesSink>(files, train::events_path(plan.run_folder)));
  telemetry.add(std::make_unique<telemetry::TensorBoardSink>(files, plan.run_folder));
  if (plan.recipe.mlperf.enabled()) {
    telemetry.add(
        std::make_unique<telemetry::MlperfLogSink>(files, train::mlperf_log_path(plan.run_folder)));
  }
  train::SessionOptions options;
  options.run_folder = plan.run_folder;
  options.trace_steps = arguments.trace_steps;
  options.stop_after_step = arguments.stop_after_step;
  const train::Summary summary = train_and_draw(plan, options, files, telemetry);
  if (arguments.json) {
    print_message(train::format_summary(summary));
    Json result = train::to_json(summary);
    result["report"] = report_path(plan.run_folder);
    print_json(result);
  } else {
    print_text(train::format_summary(summary));
  }
  print_message(fmt::format("The report is in {}\n", report_path(plan.run_folder)));
  return summary.exit_code;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model, or go on with a run");
  command
      ->add_option("RECIPE", arguments->target,
                   "Recipe file, name of a recipe, or run folder to resume")
      ->required();
  command->add_option("KEY=VALUE", arguments->overrides, "Keys of the recipe to set");
  command
      ->add_option("--with", arguments->with,
                   "YAML of further keys, which replace the recipe's; KEY=VALUE wins")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("--run", arguments->run, "Run folder; default runs/NAME")
      ->type_name("FOLDER");
  command
      ->add_option("--trace", arguments->trace_steps,
                   "Record this many steps into trace.json (Perfetto)")
      ->check(at_least(0));
  command
      ->add_option("--stop-after", arguments->stop_after_step,
                   "Save and stop after this step; exit code 75")
      ->check(at_least(0))
      ->type_name("STEP");
  command->add_flag(
      "--dry-run", arguments->dry_run,
      "Describe the run (sizes, memory per rank, schedule) and do not start it; of an "
      "MLPerf run also the head of its log, checked");
  command->add_option("--nproc", arguments->processes, "Processes on this machine (1 for now)");
  // Of the commands that run this one; not for people.
  command->add_option("--end-with-parent", arguments->parent)->group("");
  add_json_option(*command, arguments->json);
  command->footer(
      "A run that was interrupted goes on by itself: give the same command with its run.name or\n"
      "--run again, or just the run folder. Ctrl-C or SIGTERM saves and stops (exit code 75),\n"
      "SIGUSR1 saves and goes on.\n\n"
      "Examples:\n"
      "  tutti train demo\n"
      "  tutti train recipes/gpt2-124m.yaml data.train=corpora/books train.steps=1000\n"
      "  tutti train runs/demo-20260131-120000 train.steps=4000\n"
      "  tutti train mlperf/llama31-8b --dry-run");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_train(*arguments); }; });
}

}  // namespace tutti::cli
