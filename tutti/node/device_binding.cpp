#include "tutti/node/device_binding.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/text.h"
#include "tutti/node/core_share.h"

namespace tutti::node {
namespace {

// What is known of a visible GPU, and what it is near to.
struct Candidate {
  DeviceBinding binding;
  std::vector<uint64_t> above;
};

size_t in_common(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<size_t>(end - a.begin());
}

const NodeTopology::Device* find_gpu(const NodeTopology& node, const std::string& address) {
  for (const NodeTopology::Device& gpu : node.gpus) {
    if (gpu_address(gpu.name) == address) return &gpu;
  }
  return nullptr;
}

// Adapters that can be meant: where there are RDMA ports, these.
std::vector<const NodeTopology::Device*> adapters(const NodeTopology& node) {
  std::vector<const NodeTopology::Device*> out;
  for (const bool rdma : {true, false}) {
    for (const NodeTopology::Device& nic : node.nics) {
      if (nic.rdma == rdma) out.push_back(&nic);
    }
    if (!out.empty()) break;
  }
  return out;
}

bool is_near(const Candidate& gpu, const NodeTopology::Device& nic) {
  return gpu.binding.numa_node >= 0 && gpu.binding.numa_node == nic.numa_node;
}

// The nearest adapter; of equally near ones the one that fewest have. `users` counts.
void give_adapter(const std::vector<const NodeTopology::Device*>& nics,
                  std::map<std::string, int>& users, Candidate& gpu) {
  const auto rank = [&](const NodeTopology::Device* nic) {
    const auto common = static_cast<int64_t>(in_common(gpu.above, nic->above));
    return std::tuple(!is_near(gpu, *nic), -common, users[nic->name]);
  };
  const auto best = std::min_element(
      nics.begin(), nics.end(), [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
  if (best == nics.end()) return;
  const NodeTopology::Device& nic = **best;
  ++users[nic.name];
  gpu.binding.nic = nic.name;
  gpu.binding.nic_is_near = is_near(gpu, nic);
  gpu.binding.nic_bytes_per_second = nic.bytes_per_second;
}

std::vector<Candidate> candidates(const std::vector<engine::DeviceInfo>& visible,
                                  const NodeTopology& node, const std::vector<GpuState>& driver) {
  const auto nics = adapters(node);
  std::map<std::string, int> users;
  std::vector<Candidate> out;
  for (size_t device = 0; device < visible.size(); ++device) {
    Candidate gpu;
    gpu.binding.device = static_cast<int>(device);
    gpu.binding.gpu = gpu_address(visible[device].pci);
    gpu.binding.model = visible[device].name;
    if (const NodeTopology::Device* known = find_gpu(node, gpu.binding.gpu)) {
      gpu.binding.numa_node = known->numa_node;
      gpu.above = known->above;
    }
    for (const GpuState& state : driver) {
      if (gpu_address(state.bus) != gpu.binding.gpu || gpu.binding.numa_node >= 0) continue;
      gpu.binding.numa_node = state.numa_node.value_or(-1);
    }
    give_adapter(nics, users, gpu);
    out.push_back(std::move(gpu));
  }
  return out;
}

// The `count` that share least.
std::vector<Candidate> choose(std::vector<Candidate> all, size_t count) {
  std::vector<Candidate> out;
  std::map<std::string, int> on_nic;
  std::map<int, int> on_node;
  while (out.size() < count) {
    const auto load = [&](const Candidate& gpu) {
      return std::tuple(on_nic[gpu.binding.nic], on_node[gpu.binding.numa_node],
                        gpu.binding.device);
    };
    const auto best = std::min_element(
        all.begin(), all.end(), [&](const auto& a, const auto& b) { return load(a) < load(b); });
    ++on_nic[best->binding.nic];
    ++on_node[best->binding.numa_node];
    out.push_back(*best);
    all.erase(best);
  }
  return out;
}

// "0-3,8" -> 0 1 2 3 8.
std::vector<int> parse_cores(const std::string& text) {
  std::vector<int> out;
  for (const std::string_view part : split(text, ',')) {
    int first = 0;
    const char* end = part.data() + part.size();
    auto [at, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc()) continue;
    int last = first;
    if (at != end && *at == '-') std::from_chars(at + 1, end, last);
    for (int core = first; core <= last; ++core) out.push_back(core);
  }
  return out;
}

// The cores of each NUMA node, divided among the ranks whose GPU is near it.
void give_cores(const NodeTopology& node, std::vector<DeviceBinding>& bindings) {
  for (const NodeTopology::NumaNode& numa : node.numa_nodes) {
    const std::vector<int> cores = parse_cores(numa.cores);
    std::vector<DeviceBinding*> here;
    for (DeviceBinding& binding : bindings) {
      if (binding.numa_node == numa.index) here.push_back(&binding);
    }
    if (here.empty() || cores.size() < here.size()) continue;
    const size_t each = cores.size() / here.size();
    for (size_t i = 0; i < here.size(); ++i) {
      const auto first = cores.begin() + static_cast<int64_t>(i * each);
      here[i]->cores.assign(first, first + static_cast<int64_t>(each));
    }
  }
}

}  // namespace

std::string gpu_address(const std::string& bus) {
  std::string out;
  for (const char c : bus) {
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const size_t domain = out.find(':');
  if (domain != std::string::npos && domain > 4) {
    const size_t zeros = std::min(out.find_first_not_of('0'), domain - 4);
    out.erase(0, zeros);
  }
  return out;
}

std::vector<DeviceBinding> bind_devices(const std::vector<engine::DeviceInfo>& visible,
                                        const NodeTopology& node,
                                        const std::vector<GpuState>& driver, int64_t ranks) {
  TUTTI_CHECK(!visible.empty() && ranks > 0, "{} ranks on {} devices", ranks, visible.size());
  const auto count = std::min(static_cast<size_t>(ranks), visible.size());
  std::vector<Candidate> chosen = choose(candidates(visible, node, driver), count);
  std::sort(chosen.begin(), chosen.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.binding.numa_node, a.above, a.binding.device) <
           std::tie(b.binding.numa_node, b.above, b.binding.device);
  });
  std::vector<DeviceBinding> out;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    out.push_back(chosen[rank % count].binding);
  }
  give_cores(node, out);
  return out;
}

std::string device_bindings_text(const std::vector<DeviceBinding>& bindings,
                                 const std::vector<std::string>& hosts) {
  const bool several =
      std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host != hosts[0]; });
  std::vector<std::vector<std::string>> rows = {{"rank", "GPU", "model", "NUMA", "NIC", "cores"}};
  for (size_t rank = 0; rank < bindings.size(); ++rank) {
    const DeviceBinding& binding = bindings[rank];
    std::string nic = binding.nic.empty() ? "none" : binding.nic;
    if (binding.nic_bytes_per_second > 0) {
      nic += fmt::format(" {:.0f} Gb/s", binding.nic_bytes_per_second * 8e-9);
    }
    if (!binding.nic.empty() && !binding.nic_is_near) nic += " (far)";
    rows.push_back({several ? fmt::format("{} on {}", rank, hosts.at(rank)) : std::to_string(rank),
                    fmt::format("{} {}", binding.device, binding.gpu), binding.model,
                    binding.numa_node < 0 ? "?" : std::to_string(binding.numa_node), nic,
                    binding.cores.empty() ? "any" : cores_text(binding.cores)});
  }
  return format_table(rows);
}

Json to_json(const DeviceBinding& binding) {
  return Json{{"device", binding.device},
              {"gpu", binding.gpu},
              {"model", binding.model},
              {"numa_node", binding.numa_node},
              {"nic", binding.nic},
              {"nic_is_near", binding.nic_is_near},
              {"nic_bytes_per_second", binding.nic_bytes_per_second},
              {"cores", binding.cores}};
}

DeviceBinding parse_device_binding(const Json& json) {
  const std::string origin = "a rank's device";
  DeviceBinding out;
  out.device = json_get<int>(json, "device", origin);
  out.gpu = json_get<std::string>(json, "gpu", origin);
  out.model = json_get<std::string>(json, "model", origin);
  out.numa_node = json_get<int>(json, "numa_node", origin);
  out.nic = json_get<std::string>(json, "nic", origin);
  out.nic_is_near = json_get<bool>(json, "nic_is_near", origin);
  out.nic_bytes_per_second = json_get<double>(json, "nic_bytes_per_second", origin);
  out.cores = json_get<std::vector<int>>(json, "cores", origin);
  return out;
}

}  // namespace tutti::node
