#include "tutti/launch/devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/message.h"
#include "tutti/comm/nccl/settings.h"
#include "tutti/engine/backend.h"
#include "tutti/node/core_share.h"

namespace tutti::launch {
namespace {

constexpr double kDevicesPatienceSeconds = 120;

std::vector<node::GpuState> what_the_driver_says() {
  try {
    return node::read_gpus().value_or(std::vector<node::GpuState>());
  } catch (const Error&) {
    return {};  // it is only asked for what hwloc may not know
  }
}

// Gathers the device bindings of all ranks at rank 0, which publishes them to all.
struct DeviceReport {
  std::vector<node::DeviceBinding> bindings;
  std::vector<std::string> hosts;
};
DeviceReport exchange(const node::DeviceBinding& mine, const comm::LaunchEnvironment& environment,
                      comm::Store& store) {
  const char* const origin = "the ranks' devices";
  const auto key = [&](const std::string& name) {
    return fmt::format("generation-{}/device/{}", environment.generation, name);
  };
  Json own = to_json(mine);
  own["host"] = comm::host_identity();
  store.set(key(std::to_string(environment.rank)), dump_json(own));
  if (environment.rank == 0) {
    Json all = Json::array();
    for (int64_t rank = 0; rank < environment.size; ++rank) {
      all.push_back(
          parse_json(store.get(key(std::to_string(rank)), kDevicesPatienceSeconds), origin));
    }
    store.set(key("all"), dump_json(all));
  }
  DeviceReport reports;
  for (const Json& one : parse_json(store.get(key("all"), kDevicesPatienceSeconds), origin)) {
    reports.bindings.push_back(node::parse_device_binding(one));
    reports.hosts.push_back(json_get<std::string>(one, "host", origin));
  }
  return reports;
}

}  // namespace

std::optional<node::DeviceBinding> choose_device(const spec::Recipe& recipe,
                                                 const comm::LaunchEnvironment& environment,
                                                 bool alone) {
  const std::vector<engine::DeviceInfo> visible = engine::find_backend(recipe.device).devices();
  if (visible.empty()) return std::nullopt;
  if (alone) {
    node::DeviceBinding first;
    first.gpu = node::gpu_address(visible.front().pci);
    return first;
  }
  return node::bind_devices(visible, node::read_topology(), what_the_driver_says(),
                            std::max<int64_t>(1, environment.local_size))
      .at(static_cast<size_t>(environment.local_rank));
}

RankDevice take_device(const std::optional<node::DeviceBinding>& chosen,
                       const comm::LaunchEnvironment& environment, comm::Store* store, bool bind,
                       bool verbose) {
  RankDevice out;
  if (!chosen) return out;
  const node::DeviceBinding& mine = *chosen;
  out.device = mine.device;
  out.gpu = mine.gpu;
  if (store == nullptr) {
    out.gpus_here = {out.gpu};
    return out;
  }
  if (bind && !mine.cores.empty()) {
    node::bind_to({mine.cores, 1});
    out.threads = static_cast<int>(mine.cores.size());
  }
  const DeviceReport reports = exchange(mine, environment, *store);
  for (size_t rank = 0; rank < reports.bindings.size(); ++rank) {
    const std::string& gpu = reports.bindings[rank].gpu;
    if (reports.hosts[rank] != comm::host_identity()) continue;
    if (std::find(out.gpus_here.begin(), out.gpus_here.end(), gpu) == out.gpus_here.end()) {
      out.gpus_here.push_back(gpu);
    }
  }
  if (verbose && environment.rank == 0) {
    print_message(node::device_bindings_text(reports.bindings, reports.hosts));
  }
  return out;
}

void use_transport(const comm::World& world, bool verbose) {
  const comm::TransportChoice& choice = world.transport();
  if (choice.why.empty()) return;
  if (verbose) print_message(fmt::format("collectives: {}\n", choice.why));
  if (!choice.nccl) return;
  const int64_t hosts = 1 + *std::max_element(world.hosts().begin(), world.hosts().end());
  const auto settings = comm::nccl_settings(comm::read_nccl_sources(), hosts);
  if (verbose) print_message(comm::nccl_settings_text(settings));
  comm::apply_nccl_settings(settings);
}

}  // namespace tutti::launch
