// Energy of a host during a session, from counters: of its processors (base/energy_meter.h) and of
// GPUs (node/gpu_probe.h). Includes everything else that runs on them; excludes memory, network,
// fans and losses.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/energy_meter.h"
#include "tutti/node/gpu_probe.h"

namespace tutti::train {

// Of one host or, added, of all. Travels between ranks.
struct EnergyUsed {
  double processor_joules = 0;
  double gpu_joules = 0;
  int32_t hosts = 0;                 // that were asked
  int32_t hosts_with_processor = 0;  // whose processors have counters that can be read
  int32_t gpus = 0;                  // that were asked for
  int32_t gpus_with_counter = 0;

  EnergyUsed& operator+=(const EnergyUsed& other);
  double joules() const { return processor_joules + gpu_joules; }
};

// Where it is from, for people: "counter: processors (RAPL), 8 GPUs (NVML)"; empty without any.
// What has no counter is named.
std::string energy_source(const EnergyUsed& used);

class RunEnergy {
 public:
  // gpus: addresses of those that ranks of this host compute on (gpu_address()).
  RunEnergy(FileSystem& files, std::vector<std::string> gpus,
            const std::string& processor_counters = "/sys/class/powercap",
            const std::string& nvml = node::kNvmlLibrary);

  // Reads the counters of the processors, which wrap: at least every minute.
  void sample() { processors_.sample(); }
  // Since construction.
  EnergyUsed used();

 private:
  std::map<std::string, double> read_gpus_here() const;

  EnergyMeter processors_;
  std::vector<std::string> gpus_;
  std::string nvml_;
  std::map<std::string, double> first_;  // joules by GPU
};

}  // namespace tutti::train
