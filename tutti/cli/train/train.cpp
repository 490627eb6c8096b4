#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/launched.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/cli/data/tokenizer.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/dry_run.h"
#include "tutti/cli/train/memory_check.h"
#include "tutti/cli/train/run_page.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/launch/cores.h"
#include "tutti/launch/devices.h"
#include "tutti/launch/new_run_folder.h"
#include "tutti/launch/notice.h"
#include "tutti/launch/output.h"
#include "tutti/launch/plan.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/launch/supervisor.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/telemetry/sinks/mlperf_log.h"
#include "tutti/telemetry/sinks/prometheus.h"
#include "tutti/telemetry/sinks/tensorboard.h"
#include "tutti/telemetry/sinks/terminal.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/session.h"
#include "tutti/train/step/device_memory.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::cli {
namespace {

constexpr double kArrivalSeconds = 60;

// A page that cannot be written does not cause a run to fail.
void leave_page(FileSystem& files, const std::string& run_folder, telemetry::Telemetry& telemetry) {
  telemetry.flush();
  try {
    write_run_page(files, run_folder);
  } catch (const std::exception& error) {
    telemetry.warn(fmt::format("no report: {}", error.what()));
    telemetry.flush();
  }
}

// A run that diverged leaves its page too: that is the one to look at.
train::Summary train_and_draw(const launch::TrainPlan& plan, const train::SessionOptions& options,
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

// What rank 0 has decided, or why it could not.
launch::TrainPlan share_plan(comm::Store& store, const comm::LaunchEnvironment& environment,
                             const std::function<launch::TrainPlan()>& make) {
  const std::string key = fmt::format("generation-{}/plan", environment.generation);
  constexpr double kPatienceSeconds = 120;
  if (environment.rank == 0) {
    try {
      launch::TrainPlan plan = make();
      store.set(key, "+" + launch::to_text(plan));
      return plan;
    } catch (const std::exception& error) {
      store.set(key, std::string("-") + error.what());
      throw;
    }
  }
  const std::string text = store.get(key, kPatienceSeconds);
  if (text[0] == '+') return launch::parse_train_plan(text.substr(1));
  throw launch::EndedQuietly{exit_usage};  // rank 0 has said it
}

// What this process is: alone, or a rank among others.
struct RankContext {
  comm::LaunchEnvironment environment;
  std::shared_ptr<comm::Store> store;  // null: alone
  int threads = 0;                     // 0: as the recipe says
  bool leads() const { return environment.rank == 0; }
  bool alone() const { return environment.size == 1; }
};

void add_sinks(telemetry::Telemetry& telemetry, const launch::TrainPlan& plan, FileSystem& files,
               launch::NewRunFolder& folder) {
  files.create_directories(plan.run_folder);
  telemetry.add(folder.watch());
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
}

void print_result(const launch::TrainPlan& plan, const train::Summary& summary,
                  int64_t missing_events, bool json) {
  if (json) {
    print_message(train::format_summary(summary));
    Json result = to_json(summary);
    result["report"] = report_path(plan.run_folder);
    result["missing_events"] = missing_events;
    print_json(result);
  } else {
    print_text(train::format_summary(summary));
  }
  print_message(fmt::format("The report is in {}\n", report_path(plan.run_folder)));
  if (missing_events > 0) {
    print_message(
        fmt::format("tutti: warning: the record of the run is incomplete: {} events could not be "
                    "written to a log in {}\n",
                    missing_events, plan.run_folder));
  }
}

// One rank, which may be the only one.
int run_rank(const launch::TrainArguments& arguments, const RankContext& context) {
  FileSystem& files = object::file_system();
  const int64_t ranks = context.alone() && arguments.processes == 0
                            ? 0
                            : std::max<int64_t>(1, context.environment.size);
  const auto make = [&] {
    launch::TrainPlan made = launch::make_train_plan(
        files, arguments, ranks,
        context.alone() || context.environment.store_is_served ? "--nproc"
                                                               : context.environment.launcher);
    spec::check_executable(made.recipe, context.environment.size);
    launch::make_corpora(files, made.recipe);
    // The log of an MLPerf run begins before its corpora are opened, and a folder with a log is
    // spent.
    launch::require_corpora(files, made.recipe);
    if (!context.environment.store_is_served) {  // else the launcher has done it
      launch::record_checksums(files, made.recipe.data.train);
      launch::record_checksums(files, made.recipe.data.validation);
    }
    return made;
  };
  const launch::TrainPlan plan =
      context.alone() ? make() : share_plan(*context.store, context.environment, make);
  const std::optional<node::DeviceBinding> chosen =
      launch::choose_device(plan.recipe, context.environment, context.store == nullptr);
  const int number = chosen ? chosen->device : 0;
  const int64_t ranks_here = std::max<int64_t>(1, context.environment.local_size);
  check_memory(plan.recipe, ranks_here, number);
  const spec::Profile profile = spec::tutti_profile_on(
      plan.recipe, train::device_memory_bytes(plan.recipe, number, ranks_here));
  const int64_t memory_bytes = spec::memory_map(plan.recipe, profile).total_bytes();
  const bool verbose = context.environment.generation == 1;
  // The log of an MLPerf run stays: what began its time is not taken back. Other ranks write
  // nothing.
  launch::NewRunFolder folder(files, plan.run_folder,
                              plan.recipe.mlperf.enabled() || !context.leads());
  if (context.leads()) {
    if (verbose) launch::print_train_plan(plan, memory_bytes, arguments.verbose);
    keep_tokenizer(files, plan.recipe, plan.run_folder);
    train::keep_huggingface(files, plan.recipe, plan.run_folder);
  }
  const launch::RankDevice device = launch::take_device(
      chosen, context.environment, context.store.get(), context.threads > 0, verbose);
  train::SessionOptions options;
  if (plan.recipe.threads == 0) {
    options.threads = device.threads > 0 ? device.threads : context.threads;
  }
  options.gpus = device.gpus_here;
  if (context.alone()) {
    watch_signals();
    launch::watch_notice(arguments.notice);
  }
  if (arguments.parent > 0 && !end_with_parent(arguments.parent)) {
    fail(ErrorKind::io, "--end-with-parent: process {} does not exist", arguments.parent);
  }
  std::unique_ptr<comm::World> world;
  if (!context.alone()) {
    world =
        comm::join_world(context.environment, plan.recipe.parallel, context.store, kArrivalSeconds,
                         comm::Transport::automatic, device.gpu, device.device);
    launch::use_transport(*world, verbose && context.leads());
  }
  telemetry::Telemetry telemetry;
  if (context.leads()) add_sinks(telemetry, plan, files, folder);
  options.run_folder = plan.run_folder;
  options.trace_steps = arguments.trace_steps;
  options.stop_after_step = arguments.stop_after_step;
  options.world = world.get();
  options.ranks_are_processes = true;
  options.watchdog_seconds = arguments.watchdog_seconds;
  options.check_replicas_every = arguments.check_replicas_every;
  options.copy_every = arguments.copy_every;
  options.force_resume = arguments.force_resume;
  options.memory_root = launch::memory_root();
  options.note = comm::read_process_variable(launch::kNoteVariable).value_or("");
  if (!context.leads()) {
    return train::run_session(plan.recipe, options, files, telemetry).exit_code;
  }
  const train::Summary summary = train_and_draw(plan, options, files, telemetry);
  print_result(plan, summary, telemetry.missing_events(), arguments.json);
  return summary.exit_code;
}

// Reports to the launcher why a rank ends, so that it can distinguish causes from consequences.
int run_assigned_rank(const launch::TrainArguments& arguments) {
  RankContext context;
  context.environment = comm::read_launch_environment();
  if (!context.alone() && arguments.processes > 1) {
    fail(ErrorKind::usage,
         "--nproc {}: this process was started as one of {} ranks already (by {}); leave it out",
         arguments.processes, context.environment.size, context.environment.launcher);
  }
  context.threads = launch::take_cores(context.environment, context.environment.generation == 1);
  if (!context.alone()) {
    watch_signals();  // before the store has threads
    // For ranks that our launcher started, the launcher watches the notice and signals them.
    if (!context.environment.store_is_served) launch::watch_notice(arguments.notice);
  }
  context.store = comm::meet_at_store(context.environment, kArrivalSeconds);
  if (!context.environment.store_is_served) return run_rank(arguments, context);
  try {
    return run_rank(arguments, context);
  } catch (const Error& error) {
    launch::report_to_launcher(*context.store, context.environment, error);
    throw;
  }
}

int run_train(const launch::TrainArguments& arguments) {
  outlive_readers();  // of its progress
  FileSystem& files = object::file_system();
  if (arguments.least_processes > std::max<int64_t>(1, arguments.processes)) {
    fail(ErrorKind::usage, "--min-nproc {}: needs --nproc, and at most its value",
         arguments.least_processes);
  }
  if (arguments.parent > 0 || comm::read_process_variable("TUTTI_STORE")) {
    leave_ending_to_launcher();
  }
  if (arguments.ranks_per_node > 0 && arguments.processes % arguments.ranks_per_node != 0) {
    fail(ErrorKind::usage, "--ranks-per-node {}: expected to divide --nproc {}",
         arguments.ranks_per_node, arguments.processes);
  }
  if (arguments.dry_run) {
    const launch::TrainPlan plan =
        launch::make_train_plan(files, arguments, arguments.processes, "--nproc");
    if (arguments.verbose) print_message(spec::to_yaml(plan.recipe));
    return dry_run(files, plan.recipe, plan.run_folder, arguments.json);
  }
  const bool over_nodes = arguments.ranks_per_node > 0;
  if ((arguments.processes > 1 || over_nodes) && comm::read_launch_environment().size == 1) {
    return launch::train_with_ranks(arguments);
  }
  return run_assigned_rank(arguments);
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<launch::TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model, or resume a run");
  command
      ->add_option("RECIPE", arguments->target,
                   "Recipe file, name of a recipe, or run folder to resume")
      ->required();
  command->add_option("SETTING", arguments->overrides, "KEY=VALUE: override a key of the recipe");
  command
      ->add_option("--with", arguments->with,
                   "YAML of further keys, which override the recipe's; KEY=VALUE overrides both")
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
  command->add_flag("--force-resume", arguments->force_resume,
                    "Resume even if recipe, checkpoints and events of the run folder do not match");
  command->add_flag("--verbose", arguments->verbose, "Print the whole recipe, not a summary");
  command->add_flag("--dry-run", arguments->dry_run,
                    "Describe the run (sizes, memory per rank, schedule) without starting it; for "
                    "an MLPerf run also check the header of its log");
  command
      ->add_option("--nproc", arguments->processes,
                   "Ranks to start on this machine; restarted when one dies")
      ->check(between(1, 4096))
      ->type_name("N");
  command
      ->add_option("--min-nproc", arguments->least_processes,
                   "Fewest ranks to continue with when one is lost for good; default: --nproc")
      ->check(between(1, 4096))
      ->type_name("N");
  command
      ->add_option("--ranks-per-node", arguments->ranks_per_node,
                   "Start the ranks on the nodes of this Slurm job; further nodes are spares")
      ->check(between(1, 4096))
      ->type_name("N");
  command
      ->add_option("--node-check", arguments->node_check,
                   "Health check that a node must pass (exit code 0 or 1) before ranks start on it")
      ->type_name("COMMAND");
  command
      ->add_option("--notice", arguments->notice,
                   "Save and stop when this file appears, such as a spot termination notice")
      ->envname("TUTTI_NOTICE_FILE")
      ->type_name("FILE");
  command
      ->add_option("--watchdog", arguments->watchdog_seconds,
                   "Time limit of a step before it counts as hung; default: 10 s, or 3 long steps")
      ->check(between(0, 1e6))
      ->type_name("SECONDS");
  command
      ->add_option("--check-replicas", arguments->check_replicas_every,
                   "Compare the parameters of replicas this often; 0: never")
      ->check(at_least(0))
      ->capture_default_str()
      ->type_name("STEPS");
  command
      ->add_option("--peer-copies", arguments->copy_every,
                   "Keep in-memory checkpoints on two hosts this often; 0: never")
      ->check(at_least(0))
      ->capture_default_str()
      ->type_name("STEPS");
  // Of the commands that run this one; not for people.
  command->add_option("--end-with-parent", arguments->parent)->group("");
  add_json_option(*command, arguments->json);
  command->footer(
      "An interrupted run resumes by itself: repeat the command with its run.name or\n"
      "--run, or give just the run folder. Ctrl-C or SIGTERM saves and stops (exit code 75),\n"
      "SIGUSR1 saves and continues.\n\n"
      "Examples:\n"
      "  tutti train demo\n"
      "  tutti train recipes/gpt2-124m.yaml data.train=corpora/books train.steps=1000\n"
      "  tutti train demo --nproc 2 parallel.zero=1\n"
      "  tutti train runs/demo-20260131-120000 train.steps=4000\n"
      "  tutti train mlperf/llama31-8b --dry-run");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_train(*arguments); }; });
}

}  // namespace tutti::cli
