#include "tutti/cli/scaling_ranks.h"

#include <fmt/format.h>

#include <memory>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/cli/common.h"
#include "tutti/cli/home.h"
#include "tutti/cli/memory_check.h"
#include "tutti/cli/rank_cores.h"
#include "tutti/comm/rank_processes.h"
#include "tutti/comm/world.h"
#include "tutti/spec/fit_mesh.h"

namespace tutti::cli {
namespace {

constexpr const char* kResultKey = "bench-scaling";
constexpr int kMeetSeconds = 60;

}  // namespace

spec::Recipe recipe_of_ranks(const ScalingRun& run, int64_t ranks) {
  FileSystem& files = posix_file_system();
  const std::string path = find_recipe(files, run.recipe);
  spec::Recipe recipe =
      spec::parse_recipe(read_file(files, path), path, run.overrides, models_folder(files));
  if (ranks == 1) recipe.parallel = {};  // what the axes of the others are measured against
  spec::fit_mesh(recipe, ranks, "--ranks");
  return recipe;
}

train::ScalingBench measure_as_rank(const ScalingRun& run,
                                    const comm::LaunchEnvironment& environment, bool publishes) {
  take_cores(environment, false);
  const spec::Recipe recipe = recipe_of_ranks(run, environment.size);
  const std::shared_ptr<comm::Store> store = comm::meet_at_store(environment, kMeetSeconds);
  const std::unique_ptr<comm::World> world = comm::join_world(
      environment, recipe.parallel, store, kMeetSeconds,
      run.transport == "gloo" ? comm::Transport::gloo : comm::Transport::automatic);
  train::ScalingBench bench = train::bench_scaling(recipe, world.get(), run.steps, run.record);
  if (publishes && world->rank() == 0) store->set(kResultKey, dump_json(train::to_json(bench)));
  return bench;
}

train::ScalingBench measure_ranks(const ScalingRun& run, int64_t ranks, int threads) {
  ScalingRun mine = run;
  mine.overrides.push_back(fmt::format("threads={}", threads));
  const spec::Recipe recipe = recipe_of_ranks(mine, ranks);
  check_memory(recipe, ranks);
  if (ranks == 1) return train::bench_scaling(recipe, nullptr, run.steps, run.record);
  std::vector<std::string> words = {"bench", "scaling", run.recipe};
  words.insert(words.end(), mine.overrides.begin(), mine.overrides.end());
  words.insert(words.end(),
               {"--steps", std::to_string(run.steps), "--transport", run.transport, "--as-rank"});
  if (run.record) words.emplace_back("--record");
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

}  // namespace tutti::cli
