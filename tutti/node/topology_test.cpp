#include "tutti/node/topology.h"

#include <gtest/gtest.h>

#include <utility>

#include "tutti/base/error.h"

namespace tutti::node {
namespace {

NodeTopology two_sockets() {
  NodeTopology topology = read_topology("package:2 [numa(memory=4GB)] l3:1(size=8MB) core:4 pu:1");
  topology.nics = {{"eth0", "vendor nic", 0, 12.5e9}, {"eth1", "vendor nic", 1, 12.5e9}};
  topology.gpus = {{"0000:1a:00.0", "NVIDIA H100", 0, 0}};
  return topology;
}

std::vector<std::string> names(const std::vector<TopologyDifference>& differences) {
  std::vector<std::string> out;
  out.reserve(differences.size());
  for (const TopologyDifference& difference : differences) out.push_back(difference.what);
  return out;
}

using Names = std::vector<std::string>;

TEST(NodeTopology, ReadsADescribedMachine) {
  const NodeTopology topology = two_sockets();
  EXPECT_EQ(topology.packages, 2);
  EXPECT_EQ(topology.cores, 8);
  EXPECT_EQ(topology.threads, 8);
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.numa_nodes[0].cores, "0-3");
  EXPECT_EQ(topology.numa_nodes[1].cores, "4-7");
  EXPECT_EQ(topology.memory_bytes, 2 * topology.numa_nodes[0].memory_bytes);
  ASSERT_EQ(topology.caches.size(), 1U);
  EXPECT_EQ(topology.caches[0].name, "L3");
  EXPECT_EQ(topology.caches[0].count, 2);
}

TEST(NodeTopology, ReadsThisMachine) {
  const NodeTopology topology = read_topology();
  EXPECT_GE(topology.threads, 1);
  EXPECT_GE(topology.numa_nodes.size(), 1U);
  EXPECT_GT(topology.memory_bytes, 0);
  EXPECT_TRUE(compare(topology, topology).empty());
}

TEST(NodeTopology, WhatIsWrittenIsReadBack) {
  const NodeTopology topology = two_sockets();
  const NodeTopology read = parse_topology(parse_json(to_json(topology).dump(), "file"), "file");
  EXPECT_EQ(to_json(read).dump(), to_json(topology).dump());
  EXPECT_TRUE(compare(topology, read).empty());
}

TEST(NodeTopology, OtherFormatsAndMissingMembersAreErrors) {
  Json json = to_json(two_sockets());
  json["version"] = 2;
  EXPECT_THROW(parse_topology(json, "file"), Error);
  json["version"] = 1;
  json.erase("caches");
  EXPECT_THROW(parse_topology(json, "file"), Error);
  EXPECT_THROW(read_topology("nonsense:"), Error);
  EXPECT_THROW(read_topology("<topology"), Error);
}

// As in a published file of a large provider, for nineteen months.
TEST(NodeTopology, SwappedCoresOfNumaNodesAreFound) {
  NodeTopology expected = two_sockets();
  std::swap(expected.numa_nodes[0].cores, expected.numa_nodes[1].cores);
  EXPECT_EQ(names(compare(expected, two_sockets())),
            (Names{"NUMA node 0 cores", "NUMA node 1 cores"}));
}

TEST(NodeTopology, DevicesAreComparedByNameLocationAndSpeed) {
  NodeTopology found = two_sockets();
  found.nics[1].bytes_per_second = 1.25e9;
  found.nics[0].numa_node = 1;
  found.gpus.clear();
  const auto differences = compare(two_sockets(), found);
  EXPECT_EQ(names(differences), (Names{"NIC eth0", "NIC eth1", "GPU 0000:1a:00.0"}));
  EXPECT_EQ(differences[1].expected, "100 Gb/s");
  EXPECT_EQ(differences[1].found, "10 Gb/s");
  EXPECT_EQ(differences[2].found, "missing");
  EXPECT_EQ(names(compare(found, two_sockets())).size(), 2U);  // a NIC's location, an extra GPU
}

TEST(NodeTopology, LostMemoryAndCachesAreFound) {
  NodeTopology found = two_sockets();
  found.numa_nodes[0].memory_bytes -= 16 << 20;
  EXPECT_TRUE(compare(two_sockets(), found).empty());
  found.numa_nodes[1].memory_bytes /= 2;
  found.caches[0].count = 1;
  EXPECT_EQ(names(compare(two_sockets(), found)), (Names{"NUMA node 1 memory", "L3 cache"}));
}

TEST(NodeTopology, AgainstTheCatalog) {
  catalog::NodeKind kind;
  EXPECT_TRUE(compare(kind, two_sockets()).empty());
  kind.cores = 8;
  kind.numa_nodes = 2;
  kind.memory_bytes = 8.5e9;
  EXPECT_TRUE(compare(kind, two_sockets()).empty());
  kind.cores = 16;
  kind.numa_nodes = 1;
  kind.memory_bytes = 16e9;
  EXPECT_EQ(names(compare(kind, two_sockets())), (Names{"cores", "NUMA nodes", "memory"}));
}

}  // namespace
}  // namespace tutti::node
