#include "tutti/train/session/gpu_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/node/device_binding.h"

namespace tutti::train {
namespace {

// Of the clock that is waited on, in nanoseconds, more is none.
constexpr double kLongestSeconds = 1e9;

}  // namespace

telemetry::GpuMeasured gpu_event(const node::GpuState& state) {
  telemetry::GpuMeasured event;
  event.gpu = node::gpu_address(state.bus);
  event.name = state.name;
  event.power_watts = state.power_watts;
  event.energy_joules = state.energy_joules;
  if (state.clock_megahertz) event.clock_hertz = *state.clock_megahertz * 1e6;
  if (state.memory_clock_megahertz) event.memory_clock_hertz = *state.memory_clock_megahertz * 1e6;
  if (state.temperature_celsius) event.temperature_celsius = *state.temperature_celsius;
  event.memory_used_bytes = state.memory_used_bytes;
  if (state.clock_reasons) event.throttled = node::throttle_reasons(*state.clock_reasons);
  return event;
}

GpuWatch::GpuWatch(telemetry::Telemetry& telemetry, std::vector<std::string> gpus,
                   double every_seconds, std::string nvml)
    : telemetry_(telemetry),
      gpus_(std::move(gpus)),
      every_seconds_(std::min(every_seconds, kLongestSeconds)),
      nvml_(std::move(nvml)) {
  if (!gpus_.empty() && every_seconds_ > 0) worker_ = std::thread([this] { work(); });
}

GpuWatch::~GpuWatch() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  worker_.join();
}

// Opening the library takes a while: not in the caller's time.
void GpuWatch::work() {
  try {
    const node::GpuReader reader(nvml_);
    if (!reader.opened()) return;
    for (bool stopped = false;;) {
      for (const node::GpuState& state : reader.read()) {
        telemetry::GpuMeasured event = gpu_event(state);
        if (std::find(gpus_.begin(), gpus_.end(), event.gpu) == gpus_.end()) continue;
        telemetry_.emit(std::move(event));
      }
      if (stopped) return;
      std::unique_lock lock(mutex_);
      stopped = wake_.wait_for(lock, std::chrono::duration<double>(every_seconds_),
                               [this] { return stop_; });
    }
  } catch (const Error& error) {
    telemetry_.warn(fmt::format("GPUs are no longer monitored: {}", error.what()));
  }
}

}  // namespace tutti::train
