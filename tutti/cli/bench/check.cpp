#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/catalog/node_kinds.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/launch/output.h"
#include "tutti/node/check_node.h"
#include "tutti/node/checks.h"
#include "tutti/node/link_probe.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

constexpr int kUnhealthy = 3;
constexpr int kBusy = 1;  // with --strict: it could not be checked
constexpr int kReferenceRounds = 5;
constexpr double kPatienceSeconds = 600;  // for the slowest node's checks

struct CheckArguments {
  std::string against;
  std::string catalog;
  std::string topology;
  std::string write_topology;
  std::string write_reference;
  std::string name;
  std::string folder = ".";
  std::string out;
  std::string only;
  bool quick = false;
  bool strict = false;
  bool json = false;
};

// A file of kind node, or the name of a node or system of the catalog.
std::optional<catalog::NodeKind> find_kind(const CheckArguments& arguments) {
  if (arguments.against.empty()) return std::nullopt;
  FileSystem& files = posix_file_system();
  if (ends_with(arguments.against, ".yaml") || files.exists(arguments.against)) {
    const catalog::Entry entry = catalog::load_entry(files, arguments.against);
    if (entry.kind != "node") {
      fail(ErrorKind::usage, "{}: kind: '{}', but a node is checked against one of kind node",
           arguments.against, entry.kind);
    }
    return catalog::node_kind_from(entry);
  }
  return catalog::load_node_kind(files, catalog_folders(arguments.catalog), arguments.against);
}

std::optional<node::NodeTopology> find_topology(const CheckArguments& arguments) {
  if (arguments.topology.empty()) return std::nullopt;
  const std::string text = read_file(posix_file_system(), arguments.topology);
  if (starts_with(trim(text), "<")) return node::read_topology(std::string(trim(text)));
  if (!starts_with(trim(text), "{")) {
    fail(ErrorKind::corrupt,
         "{}: no topology: neither what `tutti check --write-topology FILE` writes (JSON) nor "
         "lstopo's XML",
         arguments.topology);
  }
  return node::parse_topology(parse_json(text, arguments.topology), arguments.topology);
}

// `label`: of the progress bar; empty: none.
node::NodeHealth check_this_node(const CheckArguments& arguments, const catalog::NodeKind* kind,
                                 const node::NodeTopology* topology, const std::string& label) {
  node::HealthRequest request;
  request.kind = kind;
  request.expected_topology = topology;
  request.disk_folder = arguments.folder;
  request.quick = arguments.quick;
  if (!arguments.only.empty()) {
    for (const std::string_view probe : split(arguments.only, ',')) {
      request.only.emplace_back(trim(probe));
    }
  }
  telemetry::ProgressBar progress(label, "probes");
  node::NodeHealth health =
      node::check_node(posix_file_system(), request, [&](int64_t done, int64_t total) {
        throw_if_interrupted();
        if (!label.empty()) progress.update(done, total);
      });
  progress.finish();
  return health;
}

std::string limit_text(const node::HealthCheck& check) {
  if (check.bound == node::Bound::none) return "";
  return fmt::format("{} {}", check.bound == node::Bound::at_least ? ">=" : "<=",
                     node::health_value_text(check.threshold, check.unit));
}

std::string health_table(const std::vector<node::HealthCheck>& checks) {
  std::vector<std::vector<std::string>> rows = {{"check", "value", "limit", "", ""}};
  for (const node::HealthCheck& check : checks) {
    const bool measured = check.status != node::HealthStatus::skipped && !check.unit.empty();
    const bool counted = check.unit != "count" || check.bound != node::Bound::none;
    rows.push_back(
        {check.name, measured && counted ? node::health_value_text(check.value, check.unit) : "",
         measured ? limit_text(check) : "", node::health_status_name(check.status), check.detail});
  }
  return format_table(rows);
}

std::string verdict_text(const std::string& node, const std::vector<node::HealthCheck>& checks,
                         double seconds) {
  const auto names_of = [&](node::HealthStatus status) {
    std::vector<std::string> names;
    for (const node::HealthCheck& check : checks) {
      if (check.status == status) names.push_back(check.name);
    }
    return join(names, ", ");
  };
  switch (node::state_of(checks)) {
    case node::HealthState::healthy:
      return fmt::format("{} is healthy ({})\n", node, format_seconds(seconds));
    case node::HealthState::busy:
      return fmt::format(
          "{} is busy: others used it, so that {} could not be judged; check again when it is "
          "idle\n",
          node, names_of(node::HealthStatus::busy));
    case node::HealthState::unhealthy: break;
  }
  return fmt::format("{} is unhealthy: {}\n", node, names_of(node::HealthStatus::fail));
}

// Nothing was found wrong with a busy node, nor that it is as fast as it should be.
int code_of(node::HealthState state, bool strict) {
  if (state == node::HealthState::unhealthy) return kUnhealthy;
  return state == node::HealthState::busy && strict ? kBusy : exit_ok;
}

int check_alone(const CheckArguments& arguments, const catalog::NodeKind* kind,
                const node::NodeTopology* topology) {
  const node::NodeHealth health = check_this_node(arguments, kind, topology, "check");
  const Json json = to_json(health);
  if (!arguments.out.empty()) {
    write_file_atomic(posix_file_system(), arguments.out, pretty_json(json));
  }
  if (arguments.json) {
    print_json(json);
  } else {
    print_text(health_table(health.checks) +
               verdict_text(health.node, health.checks, health.seconds));
  }
  return code_of(health.state(), arguments.strict);
}

const char* together_text(node::HealthState state) {
  switch (state) {
    case node::HealthState::healthy: return "all healthy\n";
    case node::HealthState::busy: return "none unhealthy, not all idle\n";
    case node::HealthState::unhealthy: break;
  }
  return "not all healthy\n";
}

// Several ranks: the first of each machine checks it, then all measure what is between them; rank 0
// gets everything, and everybody its verdict.
int check_together(const CheckArguments& arguments, const catalog::NodeKind* kind,
                   const node::NodeTopology* topology, const comm::LaunchEnvironment& environment) {
  const std::shared_ptr<comm::Store> store = comm::meet_at_store(environment, 60);
  const auto key = [](const char* what, int64_t rank) {
    return fmt::format("check/{}/{}", what, rank);
  };
  const std::string host = comm::host_identity();
  store->set(key("host", environment.rank), host);
  std::map<std::string, int64_t> first;  // rank of each machine
  for (int64_t rank = environment.size - 1; rank >= 0; --rank) {
    first[store->get(key("host", rank), 60)] = rank;
  }
  if (first.at(host) == environment.rank) {
    const node::NodeHealth health =
        check_this_node(arguments, kind, topology, environment.rank == 0 ? "check" : "");
    store->set(key("health", environment.rank), dump_json(to_json(health)));
  }
  std::map<int64_t, node::NodeHealth> nodes;
  std::vector<std::string> names(static_cast<size_t>(environment.size));
  auto state = node::HealthState::healthy;  // the worst of all
  for (int64_t rank = 0; rank < environment.size; ++rank) {
    const int64_t checker = first.at(store->get(key("host", rank), 60));
    if (nodes.count(checker) == 0) {
      const std::string text = store->get(key("health", checker), kPatienceSeconds);
      nodes[checker] = node::parse_node_health(parse_json(text, "a node"), "a node");
      state = std::max(state, nodes[checker].state());
    }
    names[static_cast<size_t>(rank)] = fmt::format("{} (rank {})", nodes[checker].node, rank);
  }

  spec::Mesh mesh;
  mesh.dp = environment.size;
  const std::unique_ptr<comm::World> world =
      comm::join_world(environment, mesh, store, 60, comm::Transport::automatic);
  const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream(1);
  const node::LinkProbe links = node::probe_links(*world, *stream);
  node::Checks between = node::link_checks(links, names, kind);
  if (state == node::HealthState::busy) {
    for (node::HealthCheck& check : between) {
      check = node::excused(std::move(check), "a node is busy");
    }
  }
  state = std::max(state, node::state_of(between));
  world->all().barrier(*stream).wait(*stream);
  if (environment.rank != 0) return code_of(state, arguments.strict);

  Json json = {{"healthy", state != node::HealthState::unhealthy},
               {"state", node::health_state_name(state)},
               {"ranks", environment.size}};
  std::string text;
  for (const auto& [rank, node] : nodes) {
    json["nodes"].push_back(to_json(node));
    text += health_table(node.checks) + verdict_text(node.node, node.checks, node.seconds) + "\n";
  }
  for (const node::HealthCheck& check : between) {
    json["between"].push_back(to_json(check));
  }
  for (const node::LinkProbe::Link& link : links.links) {
    json["links"].push_back({{"from", names[static_cast<size_t>(link.from)]},
                             {"to", names[static_cast<size_t>(link.from + 1) % names.size()]},
                             {"latency_seconds", link.latency_seconds},
                             {"bytes_per_second", link.bytes_per_second}});
  }
  if (!arguments.out.empty()) {
    write_file_atomic(posix_file_system(), arguments.out, pretty_json(json));
  }
  if (arguments.json) {
    print_json(json);
  } else {
    print_text(text + health_table(between) + together_text(state));
  }
  return code_of(state, arguments.strict);
}

int write_reference(const CheckArguments& arguments) {
  if (arguments.name.empty()) {
    fail(ErrorKind::usage, "--write-reference needs --name, the name of this kind of node");
  }
  std::vector<node::NodeHealth> healths;
  for (int round = 1; round <= kReferenceRounds; ++round) {
    healths.push_back(check_this_node(arguments, nullptr, nullptr,
                                      fmt::format("round {} of {}", round, kReferenceRounds)));
    const node::HealthState state = healths.back().state();
    if (state != node::HealthState::healthy) {
      print_text(health_table(healths.back().checks) +
                 verdict_text(healths.back().node, healths.back().checks, 0));
      print_message(fmt::format("tutti: no reference is made of {} node\n",
                                state == node::HealthState::busy ? "a busy" : "an unhealthy"));
      return code_of(state, true);
    }
  }
  const auto gpus = node::read_gpus();
  catalog::NodeKind kind =
      node::make_node_kind(arguments.name, healths, gpus ? *gpus : std::vector<node::GpuState>());
  const std::vector<std::string> governors = node::read_governors();
  if (!governors.empty()) kind.governor = governors.front();
  const node::NodeTopology& topology = healths.front().topology;
  const std::string yaml = catalog::node_kind_yaml(
      kind, topology.processor,
      fmt::format("tutti check on {}, median of {} rounds", topology.host, kReferenceRounds),
      format_utc(wall_seconds()).substr(0, 10));
  catalog::node_kind_from(catalog::parse_entry(yaml, arguments.write_reference));
  write_file_atomic(posix_file_system(), arguments.write_reference, yaml);
  if (arguments.json) {
    print_json({{"reference", arguments.write_reference}, {"name", arguments.name}});
  } else {
    print_text(arguments.write_reference + "\n");
  }
  return exit_ok;
}

int write_topology(const CheckArguments& arguments) {
  const Json json = to_json(node::read_topology());
  write_file_atomic(posix_file_system(), arguments.write_topology, pretty_json(json));
  if (arguments.json) {
    print_json(json);
  } else {
    print_text(arguments.write_topology + "\n");
  }
  return exit_ok;
}

int run_check(const CheckArguments& arguments) {
  if (!arguments.write_topology.empty()) return write_topology(arguments);
  if (!arguments.write_reference.empty()) return write_reference(arguments);
  const std::optional<catalog::NodeKind> kind = find_kind(arguments);
  const std::optional<node::NodeTopology> topology = find_topology(arguments);
  const comm::LaunchEnvironment environment = comm::read_launch_environment();
  const catalog::NodeKind* kind_or_null = kind ? &*kind : nullptr;
  const node::NodeTopology* topology_or_null = topology ? &*topology : nullptr;
  return environment.size > 1
             ? check_together(arguments, kind_or_null, topology_or_null, environment)
             : check_alone(arguments, kind_or_null, topology_or_null);
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command =
      app.add_subcommand("check", "Check that this node is healthy and as fast as expected");
  command
      ->add_option("--against", arguments->against,
                   "Node or system of the catalog, or a file that --write-reference wrote")
      ->type_name("NAME|FILE");
  add_catalog_option(*command, arguments->catalog);
  command
      ->add_option("--topology", arguments->topology,
                   "Compare with this file, written by --write-topology or lstopo (XML)")
      ->type_name("FILE");
  command->add_option("--folder", arguments->folder, "Folder on the disk to check")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_flag("--quick", arguments->quick, "Shorter measurements, for use before a job");
  command->add_flag("--strict", arguments->strict,
                    "Exit code 1 if other load on the node prevents a verdict on its speed");
  command
      ->add_option("--only", arguments->only,
                   "Run only these: " + join(node::probe_names(), ",") + "; default all")
      ->type_name("PROBES");
  command->add_option("--out", arguments->out, "Also write the JSON output to this file")
      ->type_name("FILE");
  command
      ->add_option("--write-topology", arguments->write_topology,
                   "Write the topology of this node, and check nothing")
      ->type_name("FILE");
  command
      ->add_option("--write-reference", arguments->write_reference,
                   "Check five times and write the results as a node of the catalog")
      ->type_name("FILE");
  command->add_option("--name", arguments->name, "Name of the node type, with --write-reference")
      ->type_name("NAME");
  add_json_option(*command, arguments->json);
  command->footer(
      "Under a launcher (srun, mpirun) every node and the links between them are checked.\n"
      "Exit code 0: healthy, or busy without --strict; 1: could not be checked; 2: usage error;\n"
      "3: unhealthy.\n\n"
      "Examples:\n"
      "  tutti check --write-reference node.yaml --name our-nodes      # on a healthy node\n"
      "  tutti check --against node.yaml --quick                       # on any node of that type\n"
      "  srun -N4 --ntasks-per-node=1 tutti check --against dgx-h100");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_check(*arguments); }; });
}

}  // namespace tutti::cli
