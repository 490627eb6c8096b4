#include "tutti/node/device_binding.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::node {
namespace {

// Two sockets of four GPUs each; a switch holds two GPUs and an RDMA port, so that ports are shared
// by pairs. Ethernet is on the first socket.
NodeTopology large_node() {
  NodeTopology node;
  node.numa_nodes = {{0, "0-15", 0}, {1, "16-31", 0}};
  node.nics.push_back({"eth0", "ethernet", 0, 3.125e9, {0, 1, 90}, false});
  for (int i = 0; i < 8; ++i) {
    const int socket = i / 4;
    const auto at = static_cast<uint64_t>(i / 2);
    const std::vector<uint64_t> above = {0, static_cast<uint64_t>(1 + socket), 10 + at};
    node.gpus.push_back(
        {gpu_address("0000:" + std::to_string(10 + i) + ":00.0"), "GPU", socket, 0, above, false});
    if (i % 2 == 0) {
      node.nics.push_back({"mlx5_" + std::to_string(at), "port", socket, 50e9, above, true});
    }
  }
  return node;
}

// As CUDA lists them, in another order than the bus: 4..7, 0..3.
std::vector<engine::DeviceInfo> visible(int count = 8) {
  std::vector<engine::DeviceInfo> out;
  for (int i = 0; i < count; ++i) {
    engine::DeviceInfo info;
    info.name = "GPU";
    info.pci = "00000000:" + std::to_string(10 + (i + 4) % 8) + ":00.0";
    out.push_back(info);
  }
  return out;
}

TEST(DeviceBindings, AddressesAreWrittenInOneWay) {
  EXPECT_EQ(gpu_address("00000000:1A:00.0"), "0000:1a:00.0");
  EXPECT_EQ(gpu_address("0000:1a:00.0"), "0000:1a:00.0");
  EXPECT_EQ(gpu_address("00010000:1A:00.0"), "10000:1a:00.0");
  EXPECT_EQ(gpu_address(""), "");
}

TEST(DeviceBindings, RanksGetTheNearestNicAndCores) {
  const auto bindings = bind_devices(visible(), large_node(), {}, 8);
  ASSERT_EQ(bindings.size(), 8U);
  for (int rank = 0; rank < 8; ++rank) {
    const DeviceBinding& binding = bindings[static_cast<size_t>(rank)];
    EXPECT_EQ(binding.device, (rank + 4) % 8);
    EXPECT_EQ(binding.gpu, "0000:" + std::to_string(10 + rank) + ":00.0");
    EXPECT_EQ(binding.numa_node, rank / 4);
    EXPECT_EQ(binding.nic, "mlx5_" + std::to_string(rank / 2));
    EXPECT_TRUE(binding.nic_is_near);
    ASSERT_EQ(binding.cores.size(), 4U);
    EXPECT_EQ(binding.cores.front(), rank * 4);
  }
}

TEST(DeviceBindings, FewRanksShareNeitherNicNorSocket) {
  const auto two = bind_devices(visible(), large_node(), {}, 2);
  EXPECT_NE(two[0].nic, two[1].nic);
  EXPECT_EQ(two[0].numa_node, 0);
  EXPECT_EQ(two[1].numa_node, 1);
  EXPECT_EQ(two[0].cores.size(), 16U);
  std::set<std::string> adapters;
  for (const DeviceBinding& binding : bind_devices(visible(), large_node(), {}, 4)) {
    adapters.insert(binding.nic);
  }
  EXPECT_EQ(adapters.size(), 4U);
}

TEST(DeviceBindings, MoreRanksThanGpusShareThemInTurn) {
  const auto bindings = bind_devices(visible(2), large_node(), {}, 5);
  ASSERT_EQ(bindings.size(), 5U);
  EXPECT_EQ(bindings[0].device, bindings[2].device);
  EXPECT_EQ(bindings[1].device, bindings[3].device);
  EXPECT_EQ(bindings[0].device, bindings[4].device);
  EXPECT_NE(bindings[0].device, bindings[1].device);
  std::set<int> cores;
  for (const DeviceBinding& binding : bindings)
    cores.insert(binding.cores.begin(), binding.cores.end());
  EXPECT_EQ(cores.size(), 15U);  // five times three of a socket's sixteen
}

TEST(DeviceBindings, TheDriverSuppliesMissingTopology) {
  NodeTopology node = large_node();
  for (auto& gpu : node.gpus) gpu.numa_node = -1;
  std::vector<GpuState> driver(1);
  driver[0].bus = "00000000:14:00.0";
  driver[0].numa_node = 1;
  const auto bindings = bind_devices(visible(), node, driver, 8);
  int known = 0;
  for (const DeviceBinding& binding : bindings) {
    if (binding.gpu == "0000:14:00.0") {
      EXPECT_EQ(binding.numa_node, 1);
    }
    known += binding.numa_node >= 0 ? 1 : 0;
  }
  EXPECT_EQ(known, 1);
}

TEST(DeviceBindings, ABareMachineIsNoError) {
  const auto bindings = bind_devices(visible(1), {}, {}, 1);
  EXPECT_EQ(bindings[0].nic, "");
  EXPECT_TRUE(bindings[0].cores.empty());
  const std::string text = device_bindings_text(bindings, {"here"});
  EXPECT_NE(text.find("none"), std::string::npos);
  EXPECT_NE(text.find("any"), std::string::npos);
}

TEST(DeviceBindings, TheTableHasARowPerRankAndNamesSeveralHosts) {
  const auto bindings = bind_devices(visible(), large_node(), {}, 2);
  const std::string text = device_bindings_text(bindings, {"a", "b"});
  EXPECT_NE(text.find("1 on b"), std::string::npos);
  EXPECT_NE(text.find("mlx5_0 400 Gb/s"), std::string::npos);
  EXPECT_EQ(device_bindings_text(bindings, {"a", "a"}).find(" on "), std::string::npos);
}

TEST(DeviceBindings, TravelAsJson) {
  const auto bindings = bind_devices(visible(), large_node(), {}, 8);
  for (const DeviceBinding& binding : bindings) {
    EXPECT_EQ(parse_device_binding(to_json(binding)), binding);
  }
}

}  // namespace
}  // namespace tutti::node
