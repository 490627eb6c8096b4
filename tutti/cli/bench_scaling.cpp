#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/commands.h"
#include "tutti/cli/common.h"
#include "tutti/cli/home.h"
#include "tutti/cli/rank_cores.h"
#include "tutti/comm/launch_environment.h"
#include "tutti/comm/rank_processes.h"
#include "tutti/spec/fit_mesh.h"
#include "tutti/spec/memory.h"
#include "tutti/train/scaling_bench.h"

namespace tutti::cli {
namespace {

constexpr const char* kResultKey = "bench-scaling";

struct ScalingArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string ranks = "1,2";
  int64_t steps = 5;
  std::string transport = "local";
  bool is_rank = false;
  bool json = false;
};

std::vector<int64_t> parse_counts(const std::string& text) {
  std::vector<int64_t> counts;
  for (const std::string_view part : split(text, ',')) {
    int64_t count = 0;
    const std::string_view word = trim(part);
    const auto read = std::from_chars(word.data(), word.data() + word.size(), count);
    if (read.ec != std::errc() || read.ptr != word.data() + word.size() || count < 1) {
      fail(ErrorKind::usage, "--ranks {}: expected numbers of ranks such as 1,2,4", text);
    }
    counts.push_back(count);
  }
  return counts;
}

spec::Recipe recipe_for(const ScalingArguments& arguments, int64_t ranks) {
  FileSystem& files = posix_file_system();
  const std::string path = find_recipe(files, arguments.recipe);
  spec::Recipe recipe =
      spec::parse_recipe(read_file(files, path), path, arguments.overrides, models_folder(files));
  spec::fit_mesh(recipe, ranks, "--ranks");
  return recipe;
}

// This process is a rank that `tutti bench scaling` has started.
int run_rank(const ScalingArguments& arguments) {
  const comm::LaunchEnvironment environment = comm::read_launch_environment();
  take_cores(environment, false);
  const spec::Recipe recipe = recipe_for(arguments, environment.size);
  const std::shared_ptr<comm::Store> store = comm::meet_at_store(environment, 60);
  const std::unique_ptr<comm::World> world = comm::join_world(
      environment, recipe.parallel, store, 60,
      arguments.transport == "gloo" ? comm::Transport::gloo : comm::Transport::automatic);
  const train::ScalingBench bench = train::bench_scaling(recipe, world.get(), arguments.steps);
  if (world->rank() == 0) store->set(kResultKey, dump_json(train::to_json(bench)));
  return exit_ok;
}

train::ScalingBench run_with(const ScalingArguments& arguments, int64_t ranks, int threads) {
  ScalingArguments mine = arguments;
  mine.overrides.push_back(fmt::format("threads={}", threads));
  const spec::Recipe recipe = recipe_for(mine, ranks);
  check_memory(spec::memory_map(recipe).total_bytes() * ranks);
  if (ranks == 1) return train::bench_scaling(recipe, nullptr, arguments.steps);
  std::vector<std::string> words = {"bench", "scaling", arguments.recipe};
  words.insert(words.end(), mine.overrides.begin(), mine.overrides.end());
  words.insert(words.end(), {"--steps", std::to_string(arguments.steps), "--transport",
                             arguments.transport, "--as-rank"});
  comm::RankProcesses processes(kThisExecutable, words, ranks);
  for (int64_t left = ranks; left > 0; --left) {
    const comm::RankExit exit = processes.wait_one();
    if (exit.ok()) continue;
    fail(ErrorKind::peer, "with {} ranks: rank {} ended with {} {}", ranks, exit.rank,
         exit.signal != 0 ? "signal" : "exit code", exit.signal != 0 ? exit.signal : exit.code);
  }
  return train::parse_scaling_bench(
      parse_json(processes.store()->get(kResultKey, 0), "the result of rank 0"));
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

int run_scaling(const ScalingArguments& arguments) {
  if (arguments.is_rank) return run_rank(arguments);
  if (arguments.transport != "local" && arguments.transport != "gloo") {
    fail(ErrorKind::usage, "--transport {}: expected local or gloo", arguments.transport);
  }
  const std::vector<int64_t> counts = parse_counts(arguments.ranks);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const int asked = recipe_for(arguments, 1).threads;
  const int threads =
      asked > 0 ? asked : std::max(1, static_cast<int>(describe_machine().cores / most));
  std::vector<train::ScalingBench> results;
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"ranks", "threads", "step", "tokens/s",
                                                 "efficiency", "lost: compute", "communication",
                                                 "waiting", "host"}};
  for (const int64_t count : counts) {
    results.push_back(run_with(arguments, count, threads));
    const train::ScalingBench& bench = results.back();
    const Losses losses = losses_of(results.front(), bench);
    const auto share = [&](double seconds) {
      return fmt::format("{:.1f}%", 100 * seconds / bench.step_seconds);
    };
    rows.push_back({std::to_string(bench.ranks), std::to_string(bench.threads),
                    format_seconds(bench.step_seconds),
                    fmt::format("{:.0f}", bench.tokens_per_second()),
                    fmt::format("{:.1f}%", 100 * losses.efficiency), share(losses.compute),
                    share(losses.exposed), share(losses.waiting), share(losses.host)});
    Json json = train::to_json(bench);
    json["efficiency"] = losses.efficiency;
    json["lost_seconds"] = {{"compute", losses.compute},
                            {"exposed_communication", losses.exposed},
                            {"waiting", losses.waiting},
                            {"host", losses.host}};
    list.push_back(std::move(json));
  }
  if (arguments.json) {
    print_json({{"recipe", arguments.recipe}, {"steps", arguments.steps}, {"results", list}});
  } else {
    print_text(format_table(rows));
  }
  return exit_ok;
}

}  // namespace

void add_bench_scaling(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand(
      "scaling",
      "A recipe's step on several numbers of ranks: efficiency, and what is lost to what");
  const auto arguments = std::make_shared<ScalingArguments>();
  command->add_option("RECIPE", arguments->recipe, "Recipe file, or name of a recipe")->required();
  command->add_option("KEY=VALUE", arguments->overrides, "Keys of the recipe to set");
  command->add_option("--ranks", arguments->ranks, "Numbers of ranks; the first is the measure")
      ->capture_default_str();
  command->add_option("--steps", arguments->steps, "To measure; two more warm up")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--transport", arguments->transport, "local: shared memory; gloo: TCP")
      ->capture_default_str();
  command->add_flag("--as-rank", arguments->is_rank)->group("");
  add_json_option(*command, arguments->json);
  command->footer(
      "The step's work is the same for every number of ranks. Every rank has equally many "
      "threads:\n"
      "the recipe's, or the cores divided by the largest number of ranks. Efficiency is tokens "
      "per\n"
      "second and thread against those of the first; what is missing is given as shares of the "
      "step.\n\n"
      "Example:\n  tutti bench scaling recipes/gpt2-124m.yaml --ranks 1,2 parallel.zero=1");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_scaling(*arguments); }; });
}

}  // namespace tutti::cli
