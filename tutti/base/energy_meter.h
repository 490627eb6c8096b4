// Energy from the processors' own counters (RAPL through /sys/class/powercap), of all packages of
// the machine. Memory, disks and power supplies are not in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti {

class EnergyMeter {
 public:
  // `folder` holds the counters: intel-rapl:0/energy_uj and max_energy_range_uj, and so on.
  explicit EnergyMeter(FileSystem& files, const std::string& folder = "/sys/class/powercap");

  // To be called more often than a counter wraps: every minute is enough for any.
  void sample();
  // Since construction, up to the last sample; absent: no counters that can be read.
  std::optional<double> joules() const;
  std::optional<int64_t> micro_kwh() const;  // rounded down

 private:
  struct Counter {
    std::string path;
    uint64_t range_uj = 0;
    uint64_t last_uj = 0;
  };
  std::vector<Counter> counters_;
  uint64_t total_uj_ = 0;
};

}  // namespace tutti
