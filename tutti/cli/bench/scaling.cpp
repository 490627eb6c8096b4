#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/bench/scaling_ranks.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/comm/rendezvous/launch_environment.h"

namespace tutti::cli {
namespace {

struct ScalingArguments {
  ScalingRun run;
  std::string ranks = "1,2";
  int64_t turns = 1;
  std::string rank_result;  // this process is a rank: where rank 0 writes the result
  bool json = false;
};

struct Width {
  int64_t ranks = 1;
  int threads = 0;  // of each; 0: not said
};

std::vector<Width> parse_widths(const std::string& text) {
  const auto number = [&](std::string_view word) {
    int count = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), count);
    if (read.ec != std::errc() || read.ptr != word.data() + word.size() || count < 1) {
      fail(ErrorKind::usage,
           "--ranks {}: expected numbers of ranks such as 1,2,4, or of ranks and threads of each "
           "such as 1x2,2x1",
           text);
    }
    return count;
  };
  std::vector<Width> widths;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view word = trim(part);
    const size_t times = word.find('x');
    if (times == std::string_view::npos) {
      widths.push_back({number(word), 0});
    } else {
      widths.push_back({number(word.substr(0, times)), number(word.substr(times + 1))});
    }
  }
  return widths;
}

// What one number of ranks loses against the first, in seconds of its step.
struct Losses {
  double efficiency = 1;  // tokens per second and thread, against those of the first
  double compute = 0;     // more of it than an equal share of the first's
  double exposed = 0, waiting = 0;
  double host = 0;  // more of it
};

Losses losses_of(const train::ScalingBench& first, const train::ScalingBench& now) {
  const auto cores = [](const train::ScalingBench& bench) {
    return static_cast<double>(bench.ranks * bench.threads);
  };
  const double share = cores(first) / cores(now);
  Losses losses;
  losses.efficiency = share * now.tokens_per_second() / first.tokens_per_second();
  losses.compute = now.compute_seconds - share * first.compute_seconds;
  losses.exposed = now.exposed_seconds - share * first.exposed_seconds;
  losses.waiting = now.waiting_seconds - share * first.waiting_seconds;
  losses.host = now.host_seconds - share * first.host_seconds;
  return losses;
}

void print_results(const ScalingArguments& arguments,
                   const std::vector<train::ScalingBench>& results) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"ranks", "threads", "step", "tokens/s",
                                                 "efficiency", "lost: compute", "communication",
                                                 "waiting", "host", "communication alone"}};
  for (const train::ScalingBench& bench : results) {
    const Losses losses = losses_of(results.front(), bench);
    const auto share = [&](double seconds) {
      return fmt::format("{:.1f}%", 100 * seconds / bench.step_seconds);
    };
    rows.push_back(
        {std::to_string(bench.ranks), std::to_string(bench.threads),
         format_seconds(bench.step_seconds), fmt::format("{:.0f}", bench.tokens_per_second()),
         fmt::format("{:.1f}%", 100 * losses.efficiency), share(losses.compute),
         share(losses.exposed), share(losses.waiting), share(losses.host),
         bench.communication_seconds > 0 ? format_seconds(bench.communication_seconds) : "-"});
    Json json = train::to_json(bench);
    json["efficiency"] = losses.efficiency;
    json["lost_seconds"] = {{"compute", losses.compute},
                            {"exposed_communication", losses.exposed},
                            {"waiting", losses.waiting},
                            {"host", losses.host}};
    list.push_back(std::move(json));
  }
  if (arguments.json) {
    print_json({{"recipe", arguments.run.recipe},
                {"steps", arguments.run.steps},
                {"turns", arguments.turns},
                {"results", list}});
  } else {
    print_text(format_table(rows));
  }
}

int run_scaling(const ScalingArguments& arguments) {
  if (arguments.run.transport != "local" && arguments.run.transport != "gloo") {
    fail(ErrorKind::usage, "--transport {}: expected local or gloo", arguments.run.transport);
  }
  const comm::LaunchEnvironment environment = comm::read_launch_environment();
  const bool is_rank = !arguments.rank_result.empty();
  if (environment.size > 1 || is_rank) {
    const train::ScalingBench bench =
        measure_as_rank(arguments.run, environment, arguments.rank_result);
    if (!is_rank && environment.rank == 0) print_results(arguments, {bench});
    return exit_ok;
  }
  const std::vector<Width> widths = parse_widths(arguments.ranks);
  int64_t most = 1;
  for (const Width& width : widths) most = std::max(most, width.ranks);
  const int asked = recipe_of_ranks(arguments.run, 1).threads;
  const int threads =
      asked > 0 ? asked : std::max(1, static_cast<int>(describe_machine().cores / most));
  // In turns, so that a machine whose speed drifts slows all of them alike.
  std::vector<std::vector<train::ScalingBench>> turns(widths.size());
  for (int64_t turn = 0; turn < arguments.turns; ++turn) {
    for (size_t i = 0; i < widths.size(); ++i) {
      turns[i].push_back(measure_ranks(arguments.run, widths[i].ranks,
                                       widths[i].threads > 0 ? widths[i].threads : threads));
    }
  }
  std::vector<train::ScalingBench> results;
  for (std::vector<train::ScalingBench>& of_width : turns) {
    const auto middle = of_width.begin() + static_cast<int64_t>(of_width.size() / 2);
    std::nth_element(of_width.begin(), middle, of_width.end(),
                     [](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; });
    results.push_back(*middle);
  }
  print_results(arguments, results);
  return exit_ok;
}

}  // namespace

void add_bench_scaling(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand(
      "scaling", "Scaling of a recipe's step over rank counts: efficiency and losses");
  const auto arguments = std::make_shared<ScalingArguments>();
  command->add_option("RECIPE", arguments->run.recipe, "Recipe file, or name of a recipe")
      ->required();
  command->add_option("SETTING", arguments->run.overrides,
                      "KEY=VALUE: override a key of the recipe");
  command
      ->add_option("--ranks", arguments->ranks,
                   "Rank counts, or RANKSxTHREADS; the first is the baseline")
      ->capture_default_str();
  command->add_option("--steps", arguments->run.steps, "Steps to measure, after two of warm-up")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--turns", arguments->turns, "Repetitions per rank count; medians are reported")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--transport", arguments->run.transport,
                   "local: shared memory, NCCL between GPUs; gloo: TCP")
      ->capture_default_str();
  command->add_option("--rank-result", arguments->rank_result)->group("");
  command->add_flag("--record", arguments->run.record)->group("");
  add_json_option(*command, arguments->json);
  command->footer(
      "The step's work is the same for every rank count (strong scaling). Without threads, every\n"
      "rank has the recipe's, or the cores divided by the largest rank count. Efficiency is "
      "tokens\n"
      "per second and thread relative to the baseline; losses are given as shares of the step.\n"
      "A single rank runs without the recipe's axes, as their baseline.\n"
      "Under mpirun, srun or torchrun only their rank count is measured.\n\n"
      "Examples:\n  tutti bench scaling recipes/gpt2-124m.yaml --ranks 1,2 parallel.zero=1\n"
      "  tutti bench scaling recipes/gpt2-124m.yaml --ranks 1x2,2x1 parallel.zero=1");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_scaling(*arguments); }; });
}

}  // namespace tutti::cli
