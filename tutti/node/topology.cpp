#include "tutti/node/topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/node/core_share.h"

namespace tutti::node {
namespace {

class Topology {
 public:
  explicit Topology(const std::string& description) {
    if (hwloc_topology_init(&topology_) != 0) fail(ErrorKind::unsupported, "hwloc does not start");
    hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_ALL);
    int failed = 0;
    if (starts_with(description, "<")) {
      failed = hwloc_topology_set_xmlbuffer(topology_, description.c_str(),
                                            static_cast<int>(description.size() + 1));
    } else if (!description.empty()) {
      failed = hwloc_topology_set_synthetic(topology_, description.c_str());
    }
    if (failed != 0 || hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      if (description.empty()) fail(ErrorKind::unsupported, "hwloc cannot describe this machine");
      fail(ErrorKind::usage, "topology: neither hwloc's XML nor its text: '{}'",
           printable(description.substr(0, 60)));
    }
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  hwloc_topology_t get() const { return topology_; }

  int count(hwloc_obj_type_t type) const {
    return std::max(0, hwloc_get_nbobjs_by_type(topology_, type));
  }
  template <typename Visit>
  void each(hwloc_obj_type_t type, const Visit& visit) const {
    for (hwloc_obj_t at = hwloc_get_next_obj_by_type(topology_, type, nullptr); at != nullptr;
         at = hwloc_get_next_obj_by_type(topology_, type, at)) {
      visit(at);
    }
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

std::string cores_of(hwloc_obj_t object) {
  std::vector<int> cores;
  for (int core = hwloc_bitmap_first(object->cpuset); core >= 0;
       core = hwloc_bitmap_next(object->cpuset, core)) {
    cores.push_back(core);
  }
  return cores_text(cores);
}

// The NUMA node that a device hangs at; -1 where it is as far from each.
int numa_of(const Topology& topology, hwloc_obj_t device) {
  hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(topology.get(), device);
  if (above == nullptr || above->nodeset == nullptr || hwloc_bitmap_weight(above->nodeset) != 1) {
    return -1;
  }
  return hwloc_bitmap_first(above->nodeset);
}

std::vector<uint64_t> above(hwloc_obj_t device) {
  std::vector<uint64_t> out;
  for (hwloc_obj_t at = device->parent; at != nullptr; at = at->parent) out.push_back(at->gp_index);
  std::reverse(out.begin(), out.end());
  return out;
}

hwloc_obj_t pci_above(hwloc_obj_t object) {
  while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

std::string pci_model(hwloc_obj_t pci) {
  const char* vendor = hwloc_obj_get_info_by_name(pci, "PCIVendor");
  const char* device = hwloc_obj_get_info_by_name(pci, "PCIDevice");
  if (device != nullptr) return fmt::format("{} {}", vendor == nullptr ? "" : vendor, device);
  return fmt::format("{:04x}:{:04x}", pci->attr->pcidev.vendor_id, pci->attr->pcidev.device_id);
}

std::string pci_address(hwloc_obj_t pci) {
  const auto& at = pci->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(at.domain),
                     static_cast<unsigned>(at.bus), static_cast<unsigned>(at.dev),
                     static_cast<unsigned>(at.func));
}

// What the kernel says of an interface of this machine; virtual ones (lo, bridges) have no device.
bool is_real_interface(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::exists("/sys/class/net/" + name + "/device", ignored);
}

double interface_bytes_per_second(const std::string& name) {
  double megabits = 0;
  std::ifstream("/sys/class/net/" + name + "/speed") >> megabits;
  return megabits > 0 ? megabits * 1e6 / 8 : 0;
}

void add_nics(const Topology& topology, bool here, NodeTopology& out) {
  std::set<std::string> names;
  topology.each(HWLOC_OBJ_OS_DEVICE, [&](hwloc_obj_t device) {
    const auto type = device->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) return;
    hwloc_obj_t pci = pci_above(device);
    if (pci == nullptr && !(here && is_real_interface(device->name))) return;
    NodeTopology::Device nic;
    nic.name = device->name;
    if (pci != nullptr) nic.model = pci_model(pci);
    nic.numa_node = numa_of(topology, device);
    if (here) nic.bytes_per_second = interface_bytes_per_second(nic.name);
    nic.above = above(pci == nullptr ? device : pci);
    nic.rdma = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    if (names.insert(nic.name).second) out.nics.push_back(nic);
  });
  std::sort(out.nics.begin(), out.nics.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
}

// Accelerators and graphics adapters of those who make accelerators: not the one of the management
// controller that every server has.
void add_gpus(const Topology& topology, NodeTopology& out) {
  constexpr unsigned kNvidia = 0x10de;
  constexpr unsigned kAmd = 0x1002;
  topology.each(HWLOC_OBJ_PCI_DEVICE, [&](hwloc_obj_t pci) {
    const unsigned vendor = pci->attr->pcidev.vendor_id;
    const unsigned kind = pci->attr->pcidev.class_id >> 8;
    if ((vendor != kNvidia && vendor != kAmd) || (kind != 0x03 && kind != 0x12)) return;
    NodeTopology::Device gpu;
    gpu.name = pci_address(pci);
    gpu.model = pci_model(pci);
    gpu.numa_node = numa_of(topology, pci);
    gpu.above = above(pci);
    out.gpus.push_back(std::move(gpu));
  });
}

void add_caches(const Topology& topology, NodeTopology& out) {
  std::map<std::pair<std::string, int64_t>, int> counts;
  for (int type = HWLOC_OBJ_L1CACHE; type <= HWLOC_OBJ_L3ICACHE; ++type) {
    topology.each(static_cast<hwloc_obj_type_t>(type), [&](hwloc_obj_t cache) {
      const auto& attributes = cache->attr->cache;
      const char* suffix = attributes.type == HWLOC_OBJ_CACHE_DATA          ? "d"
                           : attributes.type == HWLOC_OBJ_CACHE_INSTRUCTION ? "i"
                                                                            : "";
      ++counts[{fmt::format("L{}{}", attributes.depth, suffix),
                static_cast<int64_t>(attributes.size)}];
    });
  }
  for (const auto& [key, count] : counts) out.caches.push_back({key.first, key.second, count});
}

}  // namespace

NodeTopology read_topology(const std::string& description) {
  const bool here = description.empty();
  const Topology topology(description);
  NodeTopology out;
  if (here) {
    const Machine machine = describe_machine();
    out.host = machine.host;
    out.processor = machine.cpu;
  }
  out.packages = topology.count(HWLOC_OBJ_PACKAGE);
  out.cores = topology.count(HWLOC_OBJ_CORE);
  out.threads = topology.count(HWLOC_OBJ_PU);
  topology.each(HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t node) {
    const auto bytes = static_cast<int64_t>(node->attr->numanode.local_memory);
    out.numa_nodes.push_back({static_cast<int>(node->os_index), cores_of(node), bytes});
    out.memory_bytes += bytes;
  });
  add_caches(topology, out);
  add_nics(topology, here, out);
  add_gpus(topology, out);
  return out;
}

}  // namespace tutti::node
