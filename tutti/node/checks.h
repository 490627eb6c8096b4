// Compares measurements of probes with limits. General limits are defined here, those of a node
// type in its entry of the catalog.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/node/cgroup_cpu.h"
#include "tutti/node/cpu_probe.h"
#include "tutti/node/disk_probe.h"
#include "tutti/node/gpu_probe.h"
#include "tutti/node/health.h"
#include "tutti/node/link_probe.h"
#include "tutti/node/product_probe.h"

namespace tutti::node {

// A node that lost 5% is more than twice as far from full; one that lost nothing is not near it.
inline constexpr double kLeastCpuAvailable = 0.98;
inline constexpr double kMostCpuStolen = 0.02;
inline constexpr double kLeastCoresAlike = 0.95;  // the slowest core's clock over the fastest's
inline constexpr double kMostGpuCelsius = 90;
inline constexpr double kLeastLinksAlike =
    0.7;  // the slowest link over the median of three or more

// How much worse than the kind's figure a node may be where its entry does not say.
inline constexpr double kClockTolerance = 0.05;
inline constexpr double kProductTolerance = 0.05;
inline constexpr double kMemoryTolerance = 0.10;
inline constexpr double kDiskTolerance = 0.50;
inline constexpr double kSyncTolerance = 0.75;  // four times as long
inline constexpr double kLinkTolerance = 0.20;

// The one of these that holds for a figure, by its check's name.
double figure_tolerance(const std::string& name);

using Checks = std::vector<HealthCheck>;

// `kind` may be null everywhere: figures are then only noted.
Checks cpu_checks(const CpuShare& share, const CgroupCpu& group, int cores,
                  const catalog::NodeKind* kind);
// Governors of the cores' clocks; empty: the system does not report it.
HealthCheck governor_check(const std::vector<std::string>& governors,
                           const catalog::NodeKind* kind);
HealthCheck product_check(const std::string& name, const ProductProbe& probe,
                          const catalog::NodeKind* kind);
HealthCheck right_products_check(const std::vector<ProductProbe>& probes);
HealthCheck memory_check(double bytes_per_second, int repeats, const catalog::NodeKind* kind);
Checks disk_checks(const DiskProbe& probe, const std::string& folder,
                   const catalog::NodeKind* kind);
// Absent: no driver, or no right to read the kernel's log.
Checks gpu_checks(const std::optional<std::vector<GpuState>>& gpus,
                  const std::optional<std::vector<std::string>>& xids,
                  const catalog::NodeKind* kind);
HealthCheck topology_check(const std::vector<TopologyDifference>& differences, bool is_compared);
// `names`: of the node of each rank.
Checks link_checks(const LinkProbe& probe, const std::vector<std::string>& names,
                   const catalog::NodeKind* kind);

}  // namespace tutti::node
