// Metrics of this host's GPUs during a run: a thread polls the driver at an interval and emits an
// event per GPU (telemetry::GpuMeasured). Training never waits for it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/node/gpu_probe.h"
#include "tutti/telemetry/sink.h"

namespace tutti::train {

// The event of one GPU.
telemetry::GpuMeasured gpu_event(const node::GpuState& state);

class GpuWatch {
 public:
  // gpus: addresses of those to look at (gpu_address()); with none, with every_seconds 0 or without
  // the driver's library it does nothing. A driver that does not answer is reported once, as a
  // warning, and not asked again. `telemetry` outlives this.
  GpuWatch(telemetry::Telemetry& telemetry, std::vector<std::string> gpus, double every_seconds,
           std::string nvml = node::kNvmlLibrary);
  ~GpuWatch();  // looks once more
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

 private:
  void work();

  telemetry::Telemetry& telemetry_;
  const std::vector<std::string> gpus_;
  const double every_seconds_;
  const std::string nvml_;
  std::mutex mutex_;  // guards stop_
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread worker_;  // last: it uses what is above
};

}  // namespace tutti::train
