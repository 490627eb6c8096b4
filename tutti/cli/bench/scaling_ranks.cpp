#include "tutti/cli/bench/scaling_ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/train/memory_check.h"
#include "tutti/comm/rendezvous/rank_processes.h"
#include "tutti/comm/world/world.h"
#include "tutti/launch/cores.h"
#include "tutti/launch/devices.h"
#include "tutti/launch/home.h"
#include "tutti/spec/mesh/fit_mesh.h"

namespace tutti::cli {
namespace {

constexpr int kMeetSeconds = 60;

// A folder of this process's own, for as long as the object lives.
class OwnFolder {
 public:
  OwnFolder() : path_(std::filesystem::temp_directory_path() / "tutti-scaling-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) fail(ErrorKind::io, "{}: cannot be created", path_);
  }
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

spec::Recipe recipe_of_ranks(const ScalingRun& run, int64_t ranks) {
  FileSystem& files = posix_file_system();
  const std::string path = launch::find_recipe(files, run.recipe);
  spec::Recipe recipe = spec::parse_recipe(read_file(files, path), path, run.overrides,
                                           launch::models_folder(files), true);
  if (ranks == 1) recipe.parallel = {};  // what the axes of the others are measured against
  spec::fit_mesh(recipe, ranks, "--ranks");
  return recipe;
}

train::ScalingBench measure_as_rank(const ScalingRun& run,
                                    const comm::LaunchEnvironment& environment,
                                    const std::string& result) {
  launch::take_cores(environment, false);
  const spec::Recipe recipe = recipe_of_ranks(run, environment.size);
  const bool alone = environment.size == 1;
  const std::optional<node::DeviceBinding> chosen =
      launch::choose_device(recipe, environment, alone);
  check_memory(recipe, environment.local_size, chosen ? chosen->device : 0);
  const std::shared_ptr<comm::Store> store = comm::meet_at_store(environment, kMeetSeconds);
  const launch::RankDevice device =
      launch::take_device(chosen, environment, store.get(), false, false);
  std::unique_ptr<comm::World> world;
  if (!alone) {
    world = comm::join_world(
        environment, recipe.parallel, store, kMeetSeconds,
        run.transport == "gloo" ? comm::Transport::gloo : comm::Transport::automatic, device.gpu,
        device.device);
    launch::use_transport(*world, false);
  }
  train::ScalingBench bench = train::bench_scaling(recipe, world.get(), run.steps, run.record);
  if (!result.empty() && environment.rank == 0) {
    write_file_atomic(posix_file_system(), result, dump_json(to_json(bench)));
  }
  return bench;
}

train::ScalingBench measure_ranks(const ScalingRun& run, int64_t ranks, int threads) {
  ScalingRun mine = run;
  mine.overrides.push_back(fmt::format("threads={}", threads));
  const spec::Recipe recipe = recipe_of_ranks(mine, ranks);
  check_memory(recipe, ranks, kNoDevice);
  // On a device even a single rank has a process of its own: this one would keep some of the
  // device's memory from the ranks that are measured next.
  if (ranks == 1 && recipe.device == "cpu") {
    return train::bench_scaling(recipe, nullptr, run.steps, run.record);
  }
  const OwnFolder folder;
  const std::string result = join_path(folder.path(), "result.json");
  std::vector<std::string> words = {"bench", "scaling", run.recipe};
  words.insert(words.end(), mine.overrides.begin(), mine.overrides.end());
  words.insert(words.end(), {"--steps", std::to_string(run.steps), "--transport", run.transport,
                             "--rank-result", result});
  if (run.record) words.emplace_back("--record");
  comm::RankProcesses processes(kThisExecutable, words, ranks);
  for (int64_t left = ranks; left > 0; --left) {
    const comm::RankExit exit = processes.wait_one();
    if (exit.ok()) continue;
    fail(ErrorKind::peer, "with {} ranks: rank {} ended with {} {}", ranks, exit.rank,
         exit.signal != 0 ? "signal" : "exit code", exit.signal != 0 ? exit.signal : exit.code);
  }
  return train::parse_scaling_bench(
      parse_json(read_file(posix_file_system(), result), "the result of rank 0"));
}

}  // namespace tutti::cli
