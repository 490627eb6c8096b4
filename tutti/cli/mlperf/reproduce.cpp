#include "tutti/train/tasks/reproduce.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/memory_check.h"
#include "tutti/launch/supervisor.h"
#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/telemetry/sinks/terminal.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

struct ReproduceArguments {
  train::ReproduceOptions options;
  bool json = false;
};

train::ReproductionPlan make_plan(FileSystem& files, const train::ReproduceOptions& options) {
  constexpr int64_t kMiB = 1 << 20;
  telemetry::ProgressBar progress("read corpora", "MiB");
  train::ReproductionPlan plan =
      train::plan_reproduction(files, options, [&](int64_t done, int64_t total) {
        throw_if_interrupted();
        progress.update(done / kMiB, total / kMiB);
      });
  progress.finish();
  return plan;
}

void run_again(FileSystem& files, const train::ReproductionPlan& plan) {
  files.create_directories(plan.options.run_folder);
  telemetry::Telemetry telemetry;
  telemetry.add(std::make_unique<telemetry::TerminalSink>());
  telemetry.add(std::make_unique<telemetry::JsonLinesSink>(
      files, train::events_path(plan.options.run_folder)));
  try {
    train::run_session(plan.recipe, plan.options, files, telemetry);
  } catch (const Error& error) {
    // The run may have diverged too: its numbers are there to be compared.
    if (error.kind() != ErrorKind::diverged) throw;
    telemetry.flush();
    print_message(std::string(error.what()) + "\n");
  }
}

// While it lives, what this process and its children write to standard output goes to standard
// error: of a command's results this is none.
class OutputAsMessages {
 public:
  OutputAsMessages() : output_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ~OutputAsMessages() {
    std::fflush(stdout);
    ::dup2(output_, STDOUT_FILENO);
    ::close(output_);
  }
  OutputAsMessages(const OutputAsMessages&) = delete;
  OutputAsMessages& operator=(const OutputAsMessages&) = delete;

 private:
  int output_;
};

// The ranks of the recorded mesh are processes here, started and watched as by tutti train.
void run_ranks_again(FileSystem& files, const train::ReproductionPlan& plan) {
  const std::string& folder = plan.options.run_folder;
  files.create_directories(folder);
  write_file_atomic(files, train::recipe_path(folder), spec::to_yaml(plan.recipe));
  launch::TrainArguments arguments;
  arguments.target = folder;
  arguments.processes = plan.recipe.parallel.world();
  arguments.stop_after_step = plan.steps;
  const OutputAsMessages messages;
  const int code = launch::train_with_ranks(arguments);
  // As above: what ends with exit_do_not_restart may have diverged.
  if (code == exit_ok || code == exit_requeue || code == exit_do_not_restart) return;
  fail(ErrorKind::peer, "the ranks of '{}' ended with exit code {}", folder, code);
}

int run_reproduce(const ReproduceArguments& arguments) {
  FileSystem& files = posix_file_system();
  train::ReproduceOptions options = arguments.options;
  while (options.run.size() > 1 && options.run.back() == '/') options.run.pop_back();
  const std::string set = train::set_of_run(files, options.run);
  if (options.out.empty()) {
    // Beside the run; of a run in a set, beside the set.
    const std::string stem =
        set.empty() ? options.run : set + "-" + base_name(files.resolve(options.run));
    options.out = stem + "-reproduced-" + format_utc_compact(wall_seconds());
  }
  watch_signals();
  const train::ReproductionPlan plan = make_plan(files, options);
  const int64_t ranks = plan.recipe.parallel.world();
  spec::check_executable(plan.recipe, ranks);
  check_memory(plan.recipe, ranks, ranks > 1 ? kNoDevice : 0);
  print_message(fmt::format("What decides the numbers of {}, here and now:\n{}", plan.run,
                            train::format_factors(plan.factors)));
  print_message(fmt::format("running {} steps again{} in {}\n", plan.steps,
                            ranks > 1 ? fmt::format(" on {} ranks", ranks) : std::string(),
                            plan.options.run_folder));
  if (ranks > 1) {
    run_ranks_again(files, plan);
  } else {
    run_again(files, plan);
  }
  const train::Reproduction result = train::compare_reproduction(files, plan);
  if (arguments.json) {
    print_message(train::format_reproduction(result));
    print_json(train::to_json(result));
  } else {
    print_text(train::format_reproduction(result));
  }
  if (const int signal = stop_signal(); signal != 0) return 128 + signal;
  return result.equal ? exit_ok : exit_failed;
}

}  // namespace

void add_reproduce(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<ReproduceArguments>();
  CLI::App* command = app.add_subcommand("reproduce", "Repeat a run and compare it bit for bit");
  command->add_option("RUN", arguments->options.run, "Run folder")->required();
  command->add_option("SETTING", arguments->options.overrides,
                      "KEY=VALUE: override a key of the recipe, such as data.train=COPY");
  command
      ->add_option(
          "--out", arguments->options.out,
          "New run folder; default RUN-reproduced-TIME, for a run in a set next to the set")
      ->type_name("FOLDER");
  command->add_option("--steps", arguments->options.steps, "Repeat only this many steps; 0: all")
      ->check(at_least(0));
  add_json_option(*command, arguments->json);
  command->footer(
      "Compared first: recipe, data, initial weights, threads, machine, program. Then bit for "
      "bit:\n"
      "loss, gradient norm and learning rate of every step, validation losses, and the tensors of\n"
      "checkpoints that both have. Exit code 0 if all is equal, 1 if not. A run of several ranks\n"
      "is repeated with as many, as processes of this machine.\n\n"
      "Example:\n"
      "  tutti reproduce runs/demo-20260131-120000 --steps 100");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_reproduce(*arguments); }; });
}

}  // namespace tutti::cli
