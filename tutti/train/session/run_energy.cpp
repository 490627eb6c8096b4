#include "tutti/train/session/run_energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/node/device_binding.h"

namespace tutti::train {

EnergyUsed& EnergyUsed::operator+=(const EnergyUsed& other) {
  processor_joules += other.processor_joules;
  gpu_joules += other.gpu_joules;
  hosts += other.hosts;
  hosts_with_processor += other.hosts_with_processor;
  gpus += other.gpus;
  gpus_with_counter += other.gpus_with_counter;
  return *this;
}

std::string energy_source(const EnergyUsed& used) {
  std::vector<std::string> counted;
  std::vector<std::string> missing;
  if (used.hosts_with_processor > 0) counted.emplace_back("processors (RAPL)");
  if (used.hosts_with_processor < used.hosts) {
    missing.push_back(
        used.hosts_with_processor == 0
            ? "processors"
            : fmt::format("the processors of {} hosts", used.hosts - used.hosts_with_processor));
  }
  const auto gpus = [](int32_t count) {
    return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
  };
  if (used.gpus_with_counter > 0) counted.push_back(gpus(used.gpus_with_counter) + " (NVML)");
  if (used.gpus_with_counter < used.gpus) {
    missing.push_back(gpus(used.gpus - used.gpus_with_counter));
  }
  if (counted.empty()) return "";
  std::string text = "counter: " + join(counted, ", ");
  if (!missing.empty()) text += "; not " + join(missing, ", ");
  return text;
}

RunEnergy::RunEnergy(FileSystem& files, std::vector<std::string> gpus,
                     const std::string& processor_counters, const std::string& nvml)
    : processors_(files, processor_counters),
      gpus_(std::move(gpus)),
      nvml_(nvml),
      first_(read_gpus_here()) {}

std::map<std::string, double> RunEnergy::read_gpus_here() const {
  std::map<std::string, double> out;
  if (gpus_.empty()) return out;
  try {
    for (const node::GpuState& gpu :
         node::read_gpus(nvml_).value_or(std::vector<node::GpuState>())) {
      const std::string address = node::gpu_address(gpu.bus);
      const bool ours = std::find(gpus_.begin(), gpus_.end(), address) != gpus_.end();
      if (ours && gpu.energy_joules) out[address] = *gpu.energy_joules;
    }
  } catch (const Error&) {
    return {};  // a driver that does not answer: the summary says that its GPUs are not counted
  }
  return out;
}

EnergyUsed RunEnergy::used() {
  EnergyUsed out;
  sample();
  out.hosts = 1;
  if (const auto joules = processors_.joules()) {
    out.hosts_with_processor = 1;
    out.processor_joules = *joules;
  }
  out.gpus = static_cast<int32_t>(gpus_.size());
  for (const auto& [gpu, joules] : read_gpus_here()) {
    const auto before = first_.find(gpu);
    if (before == first_.end()) continue;
    ++out.gpus_with_counter;
    out.gpu_joules += joules - before->second;
  }
  return out;
}

}  // namespace tutti::train
