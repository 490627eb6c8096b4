#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/comm/collectives/bench.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/rendezvous/rank_processes.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

constexpr int64_t kCopyBytes = 64 << 20;

struct CollectivesArguments {
  int64_t ranks = 2;
  std::string sizes = "4KiB,64KiB,1MiB,16MiB,64MiB";
  std::string transport = "local";  // between hosts always gloo
  bool json = false;
};

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (const std::string_view size : split(text, ',')) {
    sizes.push_back(parse_bytes(trim(size), "--sizes"));
    if (sizes.back() < 1) fail(ErrorKind::usage, "--sizes {}: a size of no bytes", text);
  }
  return sizes;
}

void print_result(const CollectivesArguments& arguments, const comm::World& world, double copies,
                  const std::vector<comm::CollectiveBench>& results) {
  if (arguments.json) {
    Json list = Json::array();
    for (const comm::CollectiveBench& result : results) {
      list.push_back({{"collective", result.name},
                      {"bytes", result.bytes},
                      {"seconds", result.seconds},
                      {"algbw_bytes_per_second", result.algorithm_bytes_per_second},
                      {"busbw_bytes_per_second", result.bus_bytes_per_second},
                      {"share_of_copies", result.bus_bytes_per_second / copies}});
    }
    print_json({{"ranks", world.size()},
                {"transport", arguments.transport},
                {"copies_bytes_per_second", copies},
                {"results", std::move(list)}});
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"collective", "size", "time", "algbw GB/s", "busbw GB/s", "% of copies"}};
  for (const comm::CollectiveBench& result : results) {
    rows.push_back({result.name, format_bytes(static_cast<double>(result.bytes)),
                    format_seconds(result.seconds),
                    fmt::format("{:.2f}", result.algorithm_bytes_per_second * 1e-9),
                    fmt::format("{:.2f}", result.bus_bytes_per_second * 1e-9),
                    fmt::format("{:.0f}", 100 * result.bus_bytes_per_second / copies)});
  }
  print_text(fmt::format(
      "{} ranks, transport {}; copies of {} by {} of them at once: {:.2f} GB/s in all\n{}",
      world.size(), arguments.transport, format_bytes(kCopyBytes),
      std::min<int64_t>(world.size(), describe_machine().cores), copies * 1e-9,
      format_table(rows)));
}

// This process is a rank: of `tutti bench collectives`, or of any other launcher.
int run_rank(const CollectivesArguments& arguments, const comm::LaunchEnvironment& environment) {
  spec::Mesh mesh;
  mesh.dp = environment.size;
  const std::unique_ptr<comm::World> world = comm::join_world(
      environment, mesh, 60,
      arguments.transport == "gloo" ? comm::Transport::gloo : comm::Transport::automatic);
  const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream(1);
  const double copies = comm::measure_copies(*world, *stream, kCopyBytes, describe_machine().cores);
  telemetry::ProgressBar progress("measure", "collectives");
  const std::vector<comm::CollectiveBench> results = comm::bench_collectives(
      *world, *stream, parse_sizes(arguments.sizes), [&](int64_t done, int64_t total) {
        if (world->rank() == 0) progress.update(done, total);
      });
  if (world->rank() != 0) return exit_ok;
  progress.finish();
  print_result(arguments, *world, copies, results);
  return exit_ok;
}

int run_collectives(const CollectivesArguments& arguments) {
  parse_sizes(arguments.sizes);
  if (arguments.transport != "local" && arguments.transport != "gloo") {
    fail(ErrorKind::usage, "--transport {}: expected local or gloo", arguments.transport);
  }
  const comm::LaunchEnvironment environment = comm::read_launch_environment();
  if (environment.size > 1) return run_rank(arguments, environment);
  std::vector<std::string> words = {"bench",         "collectives", "--sizes",
                                    arguments.sizes, "--transport", arguments.transport};
  if (arguments.json) words.emplace_back("--json");
  comm::RankProcesses ranks("/proc/self/exe", words, arguments.ranks);
  int code = exit_ok;
  for (int64_t left = arguments.ranks; left > 0; --left) {
    const comm::RankExit exit = ranks.wait_one();
    throw_if_interrupted();
    if (exit.code == 0 && exit.signal == 0) continue;
    print_message(exit.signal != 0
                      ? fmt::format("rank {} was ended by signal {}\n", exit.rank, exit.signal)
                      : fmt::format("rank {} ended with exit code {}\n", exit.rank, exit.code));
    code = exit_failed;
  }
  return code;
}

}  // namespace

void add_bench_collectives(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand(
      "collectives", "Collectives of several ranks, next to plain copies on the same cores");
  const auto arguments = std::make_shared<CollectivesArguments>();
  command->add_option("--ranks", arguments->ranks, "Processes to start; not under a launcher")
      ->capture_default_str()
      ->check(between(2, 64));
  command->add_option("--sizes", arguments->sizes, "Sizes of the full buffer, separated by commas")
      ->capture_default_str();
  command->add_option("--transport", arguments->transport, "local: shared memory; gloo: TCP")
      ->capture_default_str();
  add_json_option(*command, arguments->json);
  command->footer("Example:\n  tutti bench collectives --ranks 2 --sizes 1MiB,64MiB");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_collectives(*arguments); }; });
}

}  // namespace tutti::cli
