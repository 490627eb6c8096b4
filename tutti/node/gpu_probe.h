// Queries the driver about the GPUs of this node: NVML, opened on demand, so that the program runs
// without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::node {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// What a GPU does not report is absent.
struct GpuState {
  std::string name;
  std::string bus;  // "00000000:1A:00.0"
  double memory_bytes = 0;
  std::optional<double> memory_used_bytes;       // by all processes
  std::optional<uint64_t> uncorrectable_errors;  // since the driver was loaded
  std::optional<bool> remap_failed;              // a row of memory that could not be replaced
  std::optional<bool> remap_pending;             // or will be at the next reset
  std::vector<std::string> throttled;  // why it runs slower than it could, where that is a fault
  std::optional<int> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<int> clock_megahertz;  // of its multiprocessors
  std::optional<int> memory_clock_megahertz;
  std::optional<uint64_t> clock_reasons;  // why not the highest clock, as NVML's bits
  std::optional<int> link_width;          // lanes of its bus, now
  std::optional<int> most_link_width;
  std::optional<int> numa_node;         // whose processors are nearest
  std::optional<double> energy_joules;  // since the driver was loaded
};

// Absent: no such library. Throws unsupported when there is one and it does not work, as after a
// change of the driver without its module.
std::optional<std::vector<GpuState>> read_gpus(const std::string& library = kNvmlLibrary);

// The library, opened once for repeated queries. One thread uses it at a time.
class GpuReader {
 public:
  // Throws unsupported as read_gpus does.
  explicit GpuReader(const std::string& library = kNvmlLibrary);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  bool opened() const { return nvml_ != nullptr; }  // false: no such library
  std::vector<GpuState> read() const;               // none where it is not opened

 private:
  class Nvml;
  std::unique_ptr<Nvml> nvml_;
};

// The names of all reasons in NVML's bit set but those of a GPU that has nothing to do: caps of
// power and clocks, and faults.
std::vector<std::string> throttle_reasons(uint64_t reasons);

// The names of the reasons in NVML's bit set that are faults: not the ones of idle or capped
// clocks.
std::vector<std::string> throttle_faults(uint64_t reasons);

// Messages "NVRM: Xid" in the kernel's log: faults of GPUs. Absent: it may not be read.
std::optional<std::vector<std::string>> read_xids(const std::string& log = "/dev/kmsg");

}  // namespace tutti::node
