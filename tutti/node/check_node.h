// Checks the node that this process runs on: what `tutti check` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/node/gpu_probe.h"
#include "tutti/node/health.h"

namespace tutti::node {

// "topology", "cpu", "governor", "products", "memory", "disk", "gpu".
const std::vector<std::string>& probe_names();

struct HealthRequest {
  const catalog::NodeKind* kind = nullptr;          // null: only limits that hold everywhere
  const NodeTopology* expected_topology = nullptr;  // null: none was given
  std::string disk_folder = ".";
  bool quick = false;             // less of each, for before a job
  std::vector<std::string> only;  // of probe_names(); empty: all
};

// One check after the other; what fails is measured up to twice more before it counts, since faults
// stay and disturbances pass. Two checks of one user on a machine wait for each other. `progress`
// counts probes. Throws usage for a probe that there is not, and what probes throw where they
// cannot measure.
NodeHealth check_node(FileSystem& files, const HealthRequest& request,
                      const std::function<void(int64_t done, int64_t total)>& progress);

// The kind of a node that was checked several times: of each figure the median; tolerances are
// those of the checks, or one and a half times the worst deviation seen where that is more.
catalog::NodeKind make_node_kind(const std::string& name, const std::vector<NodeHealth>& healths,
                                 const std::vector<GpuState>& gpus);

// Of the cores' clocks; empty where the system does not report it.
std::vector<std::string> read_governors();

}  // namespace tutti::node
