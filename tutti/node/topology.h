// Topology of a node, from hwloc, and its differences from the expected one. Also as a file (JSON),
// for comparison with other nodes of the same type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/node_kinds.h"

namespace tutti::node {

struct NodeTopology {
  struct NumaNode {
    int index = 0;
    std::string cores;  // hardware threads: "0-3,8"
    int64_t memory_bytes = 0;
  };
  struct Cache {
    std::string name;  // "L1d", "L3"
    int64_t size_bytes = 0;
    int count = 0;
  };
  struct Device {
    std::string name;  // "eth0"; of a GPU its address on the bus
    std::string model;
    int numa_node = -1;           // -1: not near any
    double bytes_per_second = 0;  // of the link, as the system says; 0: it does not
    // Of this machine, not in files. What is above it on the bus, from the root on: devices that
    // have more of it in common are closer. RDMA: an InfiniBand or RoCE port.
    std::vector<uint64_t> above = {};
    bool rdma = false;
  };

  std::string host;
  std::string processor;
  int packages = 0;
  int cores = 0;
  int threads = 0;  // hardware threads
  int64_t memory_bytes = 0;
  std::vector<NumaNode> numa_nodes;
  std::vector<Cache> caches;
  std::vector<Device> nics;
  std::vector<Device> gpus;
};

// Of this machine, or of one that `description` describes: text of hwloc's synthetic kind
// ("numa:2 core:4 pu:2"), or XML as lstopo writes it (beginning with "<"). Throws unsupported or
// usage.
NodeTopology read_topology(const std::string& description = "");

struct TopologyDifference {
  std::string what;
  std::string expected;
  std::string found;
};

// What `found` lacks or has otherwise: counts, which cores and how much memory belong to a NUMA
// node, caches, and of NICs and GPUs which there are, how fast, and near what. Memory may be 3%
// off.
std::vector<TopologyDifference> compare(const NodeTopology& expected, const NodeTopology& found);
// Counts and memory against a kind of the catalog: memory may be 10% less than a data sheet says.
// GPUs are judged where the driver reports them (gpu_probe.h).
std::vector<TopologyDifference> compare(const catalog::NodeKind& expected,
                                        const NodeTopology& found);

Json to_json(const NodeTopology& topology);
// Throws corrupt naming `origin` and the member.
NodeTopology parse_topology(const Json& json, const std::string& origin);

}  // namespace tutti::node
