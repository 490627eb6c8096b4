#include "tutti/node/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "tutti/base/quantile.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti::node {
namespace {

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

HealthCheck with_repeats(HealthCheck check, const std::vector<double>& values) {
  check.repeats = static_cast<int64_t>(values.size());
  check.spread = relative_spread(values);
  return check;
}

std::string missing_cpu_text(const CpuShare& share, const CgroupCpu& group) {
  std::vector<std::string> parts;
  if (share.withheld >= 0.001) {
    parts.push_back(percent(share.withheld) + " withheld" +
                    (group.quota_cores > 0 ? " by the quota of " + group.limited_by : ""));
  }
  if (share.stolen >= 0.001) parts.push_back(percent(share.stolen) + " stolen by the host");
  if (share.others >= 0.001) parts.push_back(percent(share.others) + " used by other programs");
  return parts.empty() ? "all cores, all the time" : join(parts, ", ");
}

// "H100" is in "NVIDIA H100 80GB HBM3", and so is "H100-80GB": all its words, whatever their case.
std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> out;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      out.insert(word);
      word.clear();
    }
  }
  return out;
}

bool names_gpu(const std::string& found, const std::vector<std::string>& expected) {
  const std::set<std::string> there = words_of(found);
  return std::any_of(expected.begin(), expected.end(), [&](const std::string& name) {
    const std::set<std::string> wanted = words_of(name);
    return std::includes(there.begin(), there.end(), wanted.begin(), wanted.end());
  });
}

HealthCheck figure(const std::string& name, double value, const std::string& unit, Bound bound,
                   const catalog::NodeKind* kind, const std::string& detail) {
  return compared(name, value, unit, bound, kind, figure_tolerance(name), detail);
}

// How many GPUs something is wrong with, and with which.
template <typename Wrong>
HealthCheck count_wrong(const char* name, const std::vector<GpuState>& gpus, const Wrong& wrong) {
  std::vector<std::string> which;
  for (const GpuState& gpu : gpus) {
    if (const std::string what = wrong(gpu); !what.empty()) which.push_back(gpu.bus + ": " + what);
  }
  return limited(name, static_cast<double>(which.size()), "count", Bound::at_most, 0,
                 join(which, "; "));
}

}  // namespace

double figure_tolerance(const std::string& name) {
  if (name == "clock") return kClockTolerance;
  if (name == "f32_product" || name == "bf16_product") return kProductTolerance;
  if (name == "memory_copy") return kMemoryTolerance;
  if (name == "disk_write" || name == "disk_read") return kDiskTolerance;
  if (name == "disk_fsync") return kSyncTolerance;
  return kLinkTolerance;
}

Checks cpu_checks(const CpuShare& share, const CgroupCpu& group, int cores,
                  const catalog::NodeKind* kind) {
  Checks out;
  // What others took says nothing about the node; what was withheld is its own.
  const bool others = share.disturbed + share.stolen > 1 - kLeastCpuAvailable;
  const auto unless_busy = [&](HealthCheck check) {
    return others ? excused(std::move(check), "other processes used the cores") : check;
  };
  HealthCheck available = limited("cpu_available", share.available, "ratio", Bound::at_least,
                                  kLeastCpuAvailable, missing_cpu_text(share, group));
  out.push_back(1 - share.withheld >= kLeastCpuAvailable ? unless_busy(available) : available);
  if (group.quota_cores > 0) {
    out.push_back(limited("cpu_quota", group.quota_cores, "count", Bound::at_least,
                          static_cast<double>(cores),
                          "cores that " + group.limited_by + " allows"));
  } else {
    out.push_back(skipped(
        "cpu_quota", "count",
        group.known ? "no control group limits the cores" : "control groups cannot be read"));
  }
  out.push_back(excused(limited("cpu_stolen", share.stolen, "ratio", Bound::at_most, kMostCpuStolen,
                                "by the host of this virtual machine, if it is one"),
                        "the host has other guests"));
  out.push_back(
      unless_busy(limited("cores_alike", share.slowest, "ratio", Bound::at_least, kLeastCoresAlike,
                          fmt::format("core {} is the slowest of {}", share.slowest_core, cores))));
  out.push_back(unless_busy(figure("clock", share.clock_hz * 1e-9, "gigahertz", Bound::at_least,
                                   kind, "of dependent operations, median core")));
  return out;
}

HealthCheck governor_check(const std::vector<std::string>& governors,
                           const catalog::NodeKind* kind) {
  if (governors.empty()) return skipped("governor", "count", "the system does not report it");
  const std::set<std::string> names(governors.begin(), governors.end());
  const std::string text = join({names.begin(), names.end()}, ", ");
  if (kind == nullptr || kind->governor.empty()) {
    HealthCheck check = skipped("governor", "count", text);
    check.status = HealthStatus::note;
    return check;
  }
  const auto others = std::count_if(governors.begin(), governors.end(),
                                    [&](const auto& name) { return name != kind->governor; });
  return limited("governor", static_cast<double>(others), "count", Bound::at_most, 0,
                 fmt::format("cores without '{}': {}", kind->governor, text));
}

HealthCheck product_check(const std::string& name, const ProductProbe& probe,
                          const catalog::NodeKind* kind) {
  return with_repeats(figure(name, probe.flops_per_second() * 1e-12, "tflops", Bound::at_least,
                             kind, fmt::format("of matrices of {} by {}", probe.size, probe.size)),
                      probe.seconds);
}

HealthCheck right_products_check(const std::vector<ProductProbe>& probes) {
  int64_t products = 0;
  int64_t changed = 0;
  int64_t wrong = 0;
  for (const ProductProbe& probe : probes) {
    products += static_cast<int64_t>(probe.seconds.size()) + 1;
    changed += probe.changed;
    wrong += probe.wrong;
  }
  HealthCheck check =
      limited("wrong_products", static_cast<double>(changed + wrong), "count", Bound::at_most, 0,
              fmt::format("{} differ from the first of the same operands, {} "
                          "entries are wrong",
                          changed, wrong));
  check.repeats = products;
  return check;
}

HealthCheck memory_check(double bytes_per_second, int repeats, const catalog::NodeKind* kind) {
  HealthCheck check = figure("memory_copy", bytes_per_second * 1e-9, "gigabytes_per_second",
                             Bound::at_least, kind, "read and written, all cores");
  check.repeats = repeats;
  return check;
}

Checks disk_checks(const DiskProbe& probe, const std::string& folder,
                   const catalog::NodeKind* kind) {
  const auto best = [](const std::vector<double>& rates) {
    return *std::max_element(rates.begin(), rates.end()) * 1e-9;
  };
  Checks out;
  out.push_back(
      with_repeats(figure("disk_write", best(probe.write_bytes_per_second), "gigabytes_per_second",
                          Bound::at_least, kind, folder + ", until durable"),
                   probe.write_bytes_per_second));
  if (probe.read_from_disk) {
    out.push_back(with_repeats(figure("disk_read", best(probe.read_bytes_per_second),
                                      "gigabytes_per_second", Bound::at_least, kind, folder),
                               probe.read_bytes_per_second));
  } else {
    out.push_back(skipped("disk_read", "gigabytes_per_second",
                          folder + ": what was written stays in memory"));
  }
  out.push_back(
      with_repeats(figure("disk_fsync", quantile(probe.sync_seconds, 0.5) * 1e6, "microseconds",
                          Bound::at_most, kind,
                          fmt::format("median of 4 KiB made durable; of a hundred one takes {}",
                                      format_seconds(quantile(probe.sync_seconds, 0.99)))),
                   probe.sync_seconds));
  return out;
}

Checks gpu_checks(const std::optional<std::vector<GpuState>>& gpus,
                  const std::optional<std::vector<std::string>>& xids,
                  const catalog::NodeKind* kind) {
  const auto expected = static_cast<double>(kind == nullptr ? 0 : kind->gpus.value_or(0));
  const auto count = static_cast<double>(gpus ? gpus->size() : 0);
  if (count == 0 && expected == 0) return {skipped("gpus", "count", "no GPU")};
  Checks out;
  out.push_back(limited("gpus", count, "count", Bound::at_least, expected,
                        !gpus           ? "no driver"
                        : gpus->empty() ? "the driver sees none"
                                        : gpus->front().name));
  if (count == 0) return out;
  if (kind != nullptr && !kind->gpu_names.empty()) {
    out.push_back(count_wrong("gpu_model", *gpus, [&](const GpuState& gpu) {
      return names_gpu(gpu.name, kind->gpu_names) ? "" : gpu.name;
    }));
  }
  if (kind != nullptr && kind->gpu_memory_bytes) {
    out.push_back(count_wrong("gpu_memory", *gpus, [&](const GpuState& gpu) {
      return gpu.memory_bytes >= 0.9 * *kind->gpu_memory_bytes ? ""
                                                               : format_bytes(gpu.memory_bytes);
    }));
  }
  out.push_back(count_wrong("gpu_ecc", *gpus, [](const GpuState& gpu) {
    return gpu.uncorrectable_errors.value_or(0) == 0
               ? ""
               : fmt::format("{} uncorrectable errors", *gpu.uncorrectable_errors);
  }));
  out.push_back(count_wrong("gpu_rows", *gpus, [](const GpuState& gpu) {
    return gpu.remap_failed.value_or(false)    ? "a row of memory could not be replaced"
           : gpu.remap_pending.value_or(false) ? "a row is replaced at the next reset"
                                               : "";
  }));
  out.push_back(count_wrong("gpu_throttled", *gpus,
                            [](const GpuState& gpu) { return join(gpu.throttled, ", "); }));
  out.push_back(count_wrong("gpu_hot", *gpus, [](const GpuState& gpu) {
    return gpu.temperature_celsius.value_or(0) <= kMostGpuCelsius
               ? ""
               : fmt::format("{} C", *gpu.temperature_celsius);
  }));
  out.push_back(count_wrong("gpu_bus", *gpus, [](const GpuState& gpu) {
    return !gpu.link_width || !gpu.most_link_width || *gpu.link_width >= *gpu.most_link_width
               ? ""
               : fmt::format("{} of {} lanes", *gpu.link_width, *gpu.most_link_width);
  }));
  if (xids) {
    out.push_back(limited("gpu_xid", static_cast<double>(xids->size()), "count", Bound::at_most, 0,
                          xids->empty() ? "" : xids->back()));
  } else {
    out.push_back(skipped("gpu_xid", "count", "the kernel's log may not be read"));
  }
  return out;
}

HealthCheck topology_check(const std::vector<TopologyDifference>& differences, bool is_compared) {
  if (!is_compared) return skipped("topology", "count", "nothing to compare with");
  std::vector<std::string> texts;
  texts.reserve(differences.size());
  for (const TopologyDifference& difference : differences) {
    texts.push_back(
        fmt::format("{}: {}, not {}", difference.what, difference.found, difference.expected));
  }
  return limited("topology", static_cast<double>(differences.size()), "count", Bound::at_most, 0,
                 join(texts, "; "));
}

Checks link_checks(const LinkProbe& probe, const std::vector<std::string>& names,
                   const catalog::NodeKind* kind) {
  const auto name_of = [&](const LinkProbe::Link& link) {
    const size_t next = (static_cast<size_t>(link.from) + 1) % names.size();
    return fmt::format("{} to {}", names[static_cast<size_t>(link.from)], names[next]);
  };
  std::vector<double> rates;
  for (const LinkProbe::Link& link : probe.links) rates.push_back(link.bytes_per_second);
  const auto slowest = std::min_element(
      probe.links.begin(), probe.links.end(),
      [](const auto& a, const auto& b) { return a.bytes_per_second < b.bytes_per_second; });
  const auto latest = std::max_element(
      probe.links.begin(), probe.links.end(),
      [](const auto& a, const auto& b) { return a.latency_seconds < b.latency_seconds; });
  Checks out;
  out.push_back(figure("link_latency", latest->latency_seconds * 1e6, "microseconds",
                       Bound::at_most, kind, "slowest: " + name_of(*latest)));
  out.push_back(
      with_repeats(figure("link", slowest->bytes_per_second * 1e-9, "gigabytes_per_second",
                          Bound::at_least, kind, "slowest: " + name_of(*slowest)),
                   rates));
  if (rates.size() >= 3) {
    out.push_back(limited("links_alike", slowest->bytes_per_second / quantile(rates, 0.5), "ratio",
                          Bound::at_least, kLeastLinksAlike, "slowest: " + name_of(*slowest)));
  }
  out.push_back(figure("all_reduce", probe.all_reduce_bytes_per_second * 1e-9,
                       "gigabytes_per_second", Bound::at_least, kind,
                       fmt::format("bus bandwidth of {} ranks", names.size())));
  return out;
}

}  // namespace tutti::node
