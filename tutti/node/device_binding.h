// Device binding: the GPU of each rank of a host, with the nearest network adapter and processor
// cores, chosen together from hwloc and the driver.
//
// With more GPUs than ranks those with their own adapter and NUMA node are preferred; ranks then
// follow the GPUs' positions in the machine, so that neighbouring ranks, which communicate most,
// are near each other. More ranks than GPUs share them in turn. NCCL itself selects the adapter of
// each message, by the same distances.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/engine/backend.h"
#include "tutti/node/gpu_probe.h"
#include "tutti/node/topology.h"

namespace tutti::node {

struct DeviceBinding {
  int device = 0;   // as the backend numbers those that this process sees
  std::string gpu;  // its address, as gpu_address() writes it
  std::string model;
  int numa_node = -1;        // -1: not known, or as far from each
  std::string nic;           // the nearest; empty: none is known
  bool nic_is_near = false;  // on the GPU's part of the machine
  double nic_bytes_per_second = 0;
  std::vector<int> cores;  // of that NUMA node, shared among its ranks; empty: not known

  bool operator==(const DeviceBinding&) const = default;
};

// "0000:1a:00.0" of what CUDA, NVML and hwloc call by different names.
std::string gpu_address(const std::string& bus);

// Of the ranks 0 .. ranks-1 of this host. `visible`: what the backend lists, at least one; `driver`
// may lack any of them.
std::vector<DeviceBinding> bind_devices(const std::vector<engine::DeviceInfo>& visible,
                                        const NodeTopology& node,
                                        const std::vector<GpuState>& driver, int64_t ranks);

// For people: a row per rank. `hosts` names the host of each.
std::string device_bindings_text(const std::vector<DeviceBinding>& bindings,
                                 const std::vector<std::string>& hosts);

Json to_json(const DeviceBinding& binding);
DeviceBinding parse_device_binding(const Json& json);

}  // namespace tutti::node
