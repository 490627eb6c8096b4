#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/units.h"
#include "tutti/node/topology.h"

namespace tutti::node {
namespace {

constexpr double kSameMemory = 0.03;      // firmware and kernel keep a little for themselves
constexpr double kDataSheetMemory = 0.1;  // and data sheets speak of what is plugged in
constexpr const char* kFormat = "tutti-topology";
constexpr int kVersion = 1;

using Device = NodeTopology::Device;
using Differences = std::vector<TopologyDifference>;

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

void compare_counts(const std::string& what, int64_t expected, int64_t found, Differences& out) {
  if (expected != found) out.push_back({what, std::to_string(expected), std::to_string(found)});
}

void compare_numa(const NodeTopology& expected, const NodeTopology& found, Differences& out) {
  compare_counts("NUMA nodes", static_cast<int64_t>(expected.numa_nodes.size()),
                 static_cast<int64_t>(found.numa_nodes.size()), out);
  const size_t both = std::min(expected.numa_nodes.size(), found.numa_nodes.size());
  for (size_t i = 0; i < both; ++i) {
    const auto& wanted = expected.numa_nodes[i];
    const auto& there = found.numa_nodes[i];
    const std::string name = fmt::format("NUMA node {}", wanted.index);
    if (wanted.cores != there.cores) {
      out.push_back({name + " cores", wanted.cores, there.cores});
    }
    const double off = static_cast<double>(wanted.memory_bytes - there.memory_bytes);
    if (std::abs(off) > kSameMemory * static_cast<double>(wanted.memory_bytes)) {
      out.push_back(
          {name + " memory", bytes_text(wanted.memory_bytes), bytes_text(there.memory_bytes)});
    }
  }
}

std::string cache_text(const NodeTopology::Cache& cache) {
  return fmt::format("{} x {}", cache.count, bytes_text(cache.size_bytes));
}

void compare_caches(const NodeTopology& expected, const NodeTopology& found, Differences& out) {
  for (const auto& wanted : expected.caches) {
    const auto there =
        std::find_if(found.caches.begin(), found.caches.end(), [&](const auto& cache) {
          return cache.name == wanted.name && cache.size_bytes == wanted.size_bytes;
        });
    if (there == found.caches.end()) {
      out.push_back({wanted.name + " cache", cache_text(wanted), "none of this size"});
    } else if (there->count != wanted.count) {
      out.push_back({wanted.name + " cache", cache_text(wanted), cache_text(*there)});
    }
  }
}

std::string near_text(int numa_node) {
  return numa_node < 0 ? "near no NUMA node" : fmt::format("near NUMA node {}", numa_node);
}

void compare_devices(const std::string& kind, const std::vector<Device>& expected,
                     const std::vector<Device>& found, Differences& out) {
  for (const Device& wanted : expected) {
    const std::string name = kind + " " + wanted.name;
    const auto there = std::find_if(found.begin(), found.end(),
                                    [&](const Device& d) { return d.name == wanted.name; });
    if (there == found.end()) {
      out.push_back({name, wanted.model.empty() ? "there" : wanted.model, "missing"});
      continue;
    }
    if (there->model != wanted.model) out.push_back({name, wanted.model, there->model});
    if (there->numa_node != wanted.numa_node) {
      out.push_back({name, near_text(wanted.numa_node), near_text(there->numa_node)});
    }
    if (there->bytes_per_second < wanted.bytes_per_second) {
      out.push_back({name, fmt::format("{:g} Gb/s", wanted.bytes_per_second * 8e-9),
                     fmt::format("{:g} Gb/s", there->bytes_per_second * 8e-9)});
    }
  }
  for (const Device& there : found) {
    const bool wanted = std::any_of(expected.begin(), expected.end(),
                                    [&](const Device& d) { return d.name == there.name; });
    if (!wanted) out.push_back({kind + " " + there.name, "none", "there"});
  }
}

Json devices_json(const std::vector<Device>& devices) {
  Json out = Json::array();
  for (const Device& device : devices) {
    out.push_back({{"name", device.name},
                   {"model", device.model},
                   {"numa_node", device.numa_node},
                   {"bytes_per_second", device.bytes_per_second}});
  }
  return out;
}

std::vector<Device> parse_devices(const Json& json, const char* key, const std::string& origin) {
  std::vector<Device> out;
  for (const Json& item : json_get<Json>(json, key, origin)) {
    out.push_back({json_get<std::string>(item, "name", origin),
                   json_get<std::string>(item, "model", origin),
                   json_get<int>(item, "numa_node", origin),
                   json_get<double>(item, "bytes_per_second", origin)});
  }
  return out;
}

}  // namespace

std::vector<TopologyDifference> compare(const NodeTopology& expected, const NodeTopology& found) {
  Differences out;
  // A file that lstopo wrote does not name the processor as the system does.
  if (!expected.processor.empty() && expected.processor != found.processor) {
    out.push_back({"processor", expected.processor, found.processor});
  }
  compare_counts("packages", expected.packages, found.packages, out);
  compare_counts("cores", expected.cores, found.cores, out);
  compare_counts("hardware threads", expected.threads, found.threads, out);
  compare_numa(expected, found, out);
  compare_caches(expected, found, out);
  compare_devices("NIC", expected.nics, found.nics, out);
  compare_devices("GPU", expected.gpus, found.gpus, out);
  return out;
}

std::vector<TopologyDifference> compare(const catalog::NodeKind& expected,
                                        const NodeTopology& found) {
  Differences out;
  if (expected.cores) compare_counts("cores", *expected.cores, found.cores, out);
  if (expected.numa_nodes) {
    compare_counts("NUMA nodes", *expected.numa_nodes,
                   static_cast<int64_t>(found.numa_nodes.size()), out);
  }
  if (expected.memory_bytes &&
      static_cast<double>(found.memory_bytes) < (1 - kDataSheetMemory) * *expected.memory_bytes) {
    out.push_back({"memory", format_bytes(*expected.memory_bytes), bytes_text(found.memory_bytes)});
  }
  return out;
}

Json to_json(const NodeTopology& topology) {
  Json numa = Json::array();
  for (const auto& node : topology.numa_nodes) {
    numa.push_back(
        {{"index", node.index}, {"cores", node.cores}, {"memory_bytes", node.memory_bytes}});
  }
  Json caches = Json::array();
  for (const auto& cache : topology.caches) {
    caches.push_back(
        {{"name", cache.name}, {"size_bytes", cache.size_bytes}, {"count", cache.count}});
  }
  return {{"format", kFormat},
          {"version", kVersion},
          {"host", topology.host},
          {"processor", topology.processor},
          {"packages", topology.packages},
          {"cores", topology.cores},
          {"threads", topology.threads},
          {"memory_bytes", topology.memory_bytes},
          {"numa_nodes", std::move(numa)},
          {"caches", std::move(caches)},
          {"nics", devices_json(topology.nics)},
          {"gpus", devices_json(topology.gpus)}};
}

NodeTopology parse_topology(const Json& json, const std::string& origin) {
  const auto format = json_get<std::string>(json, "format", origin);
  const int version = json_get<int>(json, "version", origin);
  if (format != kFormat || version != kVersion) {
    fail(ErrorKind::unsupported, "{}: format '{}' version {}; this program reads {} {}", origin,
         format, version, kFormat, kVersion);
  }
  NodeTopology out;
  out.host = json_get<std::string>(json, "host", origin);
  out.processor = json_get<std::string>(json, "processor", origin);
  out.packages = json_get<int>(json, "packages", origin);
  out.cores = json_get<int>(json, "cores", origin);
  out.threads = json_get<int>(json, "threads", origin);
  out.memory_bytes = json_get<int64_t>(json, "memory_bytes", origin);
  for (const Json& node : json_get<Json>(json, "numa_nodes", origin)) {
    out.numa_nodes.push_back({json_get<int>(node, "index", origin),
                              json_get<std::string>(node, "cores", origin),
                              json_get<int64_t>(node, "memory_bytes", origin)});
  }
  for (const Json& cache : json_get<Json>(json, "caches", origin)) {
    out.caches.push_back({json_get<std::string>(cache, "name", origin),
                          json_get<int64_t>(cache, "size_bytes", origin),
                          json_get<int>(cache, "count", origin)});
  }
  out.nics = parse_devices(json, "nics", origin);
  out.gpus = parse_devices(json, "gpus", origin);
  return out;
}

}  // namespace tutti::node
