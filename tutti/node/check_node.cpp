#include "tutti/node/check_node.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/quantile.h"
#include "tutti/base/text.h"
#include "tutti/node/checks.h"
#include "tutti/node/copy_bandwidth.h"
#include "tutti/node/core_share.h"
#include "tutti/node/cpu_wait.h"

namespace tutti::node {
namespace {

constexpr int kAttempts = 3;
constexpr double kLockSeconds = 120;
constexpr double kDeviationMargin = 1.5;

// How much is measured.
struct Effort {
  double cpu_seconds, product_seconds;
  int64_t memory_bytes;
  int memory_repeats;
  DiskProbeOptions disk;
};

Effort effort_of(bool quick) {
  constexpr int64_t kMiB = 1 << 20;
  if (quick) return {1.0, 0.3, 256 * kMiB, 4, {32 * kMiB, 1, 25}};
  return {3.0, 1.5, 512 * kMiB, 8, {256 * kMiB, 3, 200}};
}

// Two checks at once would find each other instead of faults.
std::unique_ptr<ProcessLock> wait_for_turn() {
  // Where no other user can create it first, if there is such a folder.
  const char* own = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::string folder = std::filesystem::temp_directory_path();
  if (::geteuid() == 0) {
    folder = "/run";
  } else if (own != nullptr && *own == '/') {
    folder = own;
  }
  const std::string path = join_path(folder, fmt::format("tutti-check-{}.lock", ::geteuid()));
  auto lock = take_lock(path, kLockSeconds);
  if (lock == nullptr) {
    fail(ErrorKind::io, "{}: another check has held it for {:.0f} s", path, kLockSeconds);
  }
  return lock;
}

// What fails while this process does not get the processor time that it asks for says that the
// node is busy, not that it is slow.
template <typename Measure>
Checks attempt(const Measure& measure) {
  Checks checks;
  for (int i = 0; i < kAttempts; ++i) {
    const double throttled = read_cgroup_cpu().throttled_seconds;
    const CpuUse before = read_cpu_use();
    checks = measure();
    CpuUse after = read_cpu_use();
    after.waited_seconds -= read_cgroup_cpu().throttled_seconds - throttled;  // that is the node's
    const double lost = lost_share(before, after);
    if (lost > kMostCpuLost) {
      for (HealthCheck& check : checks) {
        check = excused(std::move(check),
                        fmt::format("{:.0f}% of its processor time went to others", 100 * lost));
      }
    }
    if (state_of(checks) == HealthState::healthy) break;
  }
  return checks;
}

Checks check_cpu(const HealthRequest& request, const Effort& effort) {
  const std::vector<int> cores = share_cores(0, 1).cores;
  const CgroupCpu group = read_cgroup_cpu();
  Checks checks;
  for (int i = 0; i < kAttempts; ++i) {
    const CpuShare share = judge_cpu(sample_cpu(cores, effort.cpu_seconds), cores);
    checks = cpu_checks(share, group, static_cast<int>(cores.size()), request.kind);
    // Withheld time is not interference from others.
    if (state_of(checks) == HealthState::healthy || 1 - share.withheld < kLeastCpuAvailable) break;
  }
  return checks;
}

Checks check_products(const HealthRequest& request, const Effort& effort) {
  const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream();
  std::vector<ProductProbe> all;  // a product that was wrong once is wrong, whatever comes after
  const auto measure = [&](const char* name, DType dtype) {
    return attempt([&]() -> Checks {
             all.push_back(probe_product(*stream, dtype, effort.product_seconds));
             return {product_check(name, all.back(), request.kind)};
           })
        .front();
  };
  Checks out = {measure("f32_product", DType::f32), measure("bf16_product", DType::bf16)};
  out.push_back(right_products_check(all));
  return out;
}

Checks check_memory(const HealthRequest& request, const Effort& effort) {
  return attempt([&]() -> Checks {
    const double rate = measure_copy_bandwidth(effort.memory_repeats, effort.memory_bytes);
    return {memory_check(rate, effort.memory_repeats, request.kind)};
  });
}

bool wants(const HealthRequest& request, const std::string& probe) {
  return request.only.empty() ||
         std::find(request.only.begin(), request.only.end(), probe) != request.only.end();
}

}  // namespace

const std::vector<std::string>& probe_names() {
  static const std::vector<std::string> names = {"topology", "cpu",  "governor", "products",
                                                 "memory",   "disk", "gpu"};
  return names;
}

std::vector<std::string> read_governors() {
  std::vector<std::string> out;
  for (const int core : share_cores(0, 1).cores) {
    std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", core));
    std::string governor;
    if (in >> governor) out.push_back(governor);
  }
  return out;
}

NodeHealth check_node(FileSystem& files, const HealthRequest& request,
                      const std::function<void(int64_t, int64_t)>& progress) {
  for (const std::string& probe : request.only) {
    const std::vector<std::string>& names = probe_names();
    if (std::find(names.begin(), names.end(), probe) == names.end()) {
      fail(ErrorKind::usage, "unknown probe '{}'; known: {}", probe, join(names, ", "));
    }
  }
  const std::unique_ptr<ProcessLock> lock = wait_for_turn();
  const double begin = monotonic_seconds();
  const Effort effort = effort_of(request.quick);
  NodeHealth out;
  out.at_wall_seconds = wall_seconds();
  if (request.kind != nullptr) out.kind = request.kind->name;

  out.topology = read_topology();
  out.node = out.topology.host;

  const auto check_topology = [&]() -> Checks {
    if (request.expected_topology != nullptr) {
      out.differences = compare(*request.expected_topology, out.topology);
    }
    if (request.kind != nullptr) {
      for (auto& difference : compare(*request.kind, out.topology)) {
        out.differences.push_back(std::move(difference));
      }
    }
    return {topology_check(out.differences,
                           request.kind != nullptr || request.expected_topology != nullptr)};
  };
  const auto check_disk = [&] {
    return attempt([&] {
      return disk_checks(probe_disk(files, request.disk_folder, effort.disk), request.disk_folder,
                         request.kind);
    });
  };
  // In the order of probe_names().
  const std::vector<std::function<Checks()>> probes = {
      check_topology,
      [&] { return check_cpu(request, effort); },
      [&]() -> Checks { return {governor_check(read_governors(), request.kind)}; },
      [&] { return check_products(request, effort); },
      [&] { return check_memory(request, effort); },
      check_disk,
      [&] { return gpu_checks(read_gpus(), read_xids(), request.kind); }};

  std::vector<size_t> wanted;
  for (size_t i = 0; i < probes.size(); ++i) {
    if (wants(request, probe_names()[i])) wanted.push_back(i);
  }
  const auto total = static_cast<int64_t>(wanted.size());
  for (int64_t done = 0; done < total; ++done) {
    progress(done, total);
    for (HealthCheck& check : probes[wanted[static_cast<size_t>(done)]]()) {
      out.checks.push_back(std::move(check));
    }
  }
  progress(total, total);
  out.seconds = monotonic_seconds() - begin;
  return out;
}

catalog::NodeKind make_node_kind(const std::string& name, const std::vector<NodeHealth>& healths,
                                 const std::vector<GpuState>& gpus) {
  catalog::NodeKind kind;
  kind.name = name;
  const NodeTopology& topology = healths.front().topology;
  kind.cores = topology.cores;
  kind.numa_nodes = static_cast<int64_t>(topology.numa_nodes.size());
  kind.memory_bytes = static_cast<double>(topology.memory_bytes);
  kind.gpus = static_cast<int64_t>(gpus.size());
  if (!gpus.empty()) {
    kind.gpu_names = {gpus.front().name};
    kind.gpu_memory_bytes = gpus.front().memory_bytes;
  }
  for (const HealthCheck& check : healths.front().checks) {
    if (!check.is_figure) continue;
    std::vector<double> values;
    for (const NodeHealth& health : healths) {
      for (const HealthCheck& other : health.checks) {
        if (other.name == check.name) values.push_back(other.value);
      }
    }
    catalog::NodeKind::Figure figure;
    figure.value = quantile(values, 0.5);
    double worst = 0;
    for (const double value : values) {
      worst = std::max(worst, std::abs(value / figure.value - 1));
    }
    // Rounded up to whole per cents. What the check allows by itself need not be written.
    const double tolerance = std::ceil(100 * kDeviationMargin * worst) / 100;
    if (tolerance > figure_tolerance(check.name)) figure.tolerance = std::min(tolerance, 0.9);
    kind.figures[check.name + "_" + check.unit] = figure;
  }
  return kind;
}

}  // namespace tutti::node
