#include "tutti/node/gpu_probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <memory>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::node {
namespace {

// The part of NVML's interface that is used here, as its documentation gives it; the header comes
// with CUDA, the library with the driver.
using NvmlDevice = void*;
struct PciInfo {
  char legacy_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
constexpr int kSuccess = 0;
constexpr int kUncorrected = 1;
constexpr int kSinceLoad = 0;
constexpr int kOfGpu = 0;  // temperature sensor
struct Temperature {
  unsigned version = sizeof(Temperature) | 1U << 24;  // the first
  int sensor = kOfGpu;
  int celsius = 0;
};
constexpr int kClockOfSm = 1;
constexpr int kClockOfMemory = 2;
constexpr unsigned kAffinityOfNode = 0;

}  // namespace

class GpuReader::Nvml {
 public:
  struct CloseLibrary {
    void operator()(void* library) const { dlclose(library); }
  };

  explicit Nvml(std::unique_ptr<void, CloseLibrary> library) : library_(std::move(library)) {
    const int code = need<int()>("nvmlInit_v2")();
    if (code != kSuccess) {
      const auto text = find<const char*(int)>("nvmlErrorString");
      fail(ErrorKind::unsupported, "the GPU driver does not answer: {} (NVML error {})",
           text == nullptr ? "?" : text(code), code);
    }
  }
  ~Nvml() {
    if (const auto shutdown = find<int()>("nvmlShutdown")) shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<GpuState> gpus() const {
    unsigned count = 0;
    check(need<int(unsigned*)>("nvmlDeviceGetCount_v2")(&count), "how many GPUs there are");
    std::vector<GpuState> out;
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice device = nullptr;
      check(need<int(unsigned, NvmlDevice*)>("nvmlDeviceGetHandleByIndex_v2")(index, &device),
            fmt::format("GPU {}", index));
      out.push_back(state_of(device));
    }
    return out;
  }

 private:
  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_.get(), name));
  }
  template <typename Function>
  Function* need(const char* name) const {
    const auto function = find<Function>(name);
    if (function == nullptr) fail(ErrorKind::unsupported, "the GPU driver has no {}", name);
    return function;
  }
  static void check(int code, const std::string& what) {
    if (code != kSuccess) {
      fail(ErrorKind::unsupported, "the GPU driver does not report {} (NVML error {})", what, code);
    }
  }
  // A number of one GPU; absent where the driver or the GPU does not have it.
  template <typename Value, typename... Arguments>
  std::optional<Value> ask(const char* name, NvmlDevice device, Arguments... arguments) const {
    const auto function = find<int(NvmlDevice, Arguments..., Value*)>(name);
    Value value{};
    if (function == nullptr || function(device, arguments..., &value) != kSuccess) return {};
    return value;
  }

  GpuState state_of(NvmlDevice device) const {
    GpuState out;
    std::array<char, 96> name{};
    check(need<int(NvmlDevice, char*, unsigned)>("nvmlDeviceGetName")(
              device, name.data(), static_cast<unsigned>(name.size())),
          "a GPU's name");
    out.name = name.data();
    if (const auto pci = ask<PciInfo>("nvmlDeviceGetPciInfo_v3", device)) out.bus = pci->bus_id;
    if (const auto memory = ask<MemoryInfo>("nvmlDeviceGetMemoryInfo", device)) {
      out.memory_bytes = static_cast<double>(memory->total);
      out.memory_used_bytes = static_cast<double>(memory->used);
    }
    out.uncorrectable_errors =
        ask<unsigned long long>("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceLoad);
    read_remaps(device, out);
    auto reasons = ask<unsigned long long>("nvmlDeviceGetCurrentClocksEventReasons", device);
    if (!reasons) {  // its name before driver 535
      reasons = ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device);
    }
    if (reasons) {
      out.clock_reasons = *reasons;
      out.throttled = throttle_faults(*reasons);
    }
    out.temperature_celsius = temperature_of(device);
    if (const auto milliwatts = ask<unsigned>("nvmlDeviceGetPowerUsage", device)) {
      out.power_watts = *milliwatts * 1e-3;
    }
    if (const auto clock = ask<unsigned>("nvmlDeviceGetClockInfo", device, kClockOfSm)) {
      out.clock_megahertz = static_cast<int>(*clock);
    }
    if (const auto clock = ask<unsigned>("nvmlDeviceGetClockInfo", device, kClockOfMemory)) {
      out.memory_clock_megahertz = static_cast<int>(*clock);
    }
    if (const auto width = ask<unsigned>("nvmlDeviceGetCurrPcieLinkWidth", device)) {
      out.link_width = static_cast<int>(*width);
    }
    if (const auto width = ask<unsigned>("nvmlDeviceGetMaxPcieLinkWidth", device)) {
      out.most_link_width = static_cast<int>(*width);
    }
    if (const auto millijoules =
            ask<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption", device)) {
      out.energy_joules = static_cast<double>(*millijoules) * 1e-3;
    }
    read_numa_node(device, out);
    return out;
  }

  std::optional<int> temperature_of(NvmlDevice device) const {
    Temperature asked;
    const auto function = find<int(NvmlDevice, Temperature*)>("nvmlDeviceGetTemperatureV");
    if (function != nullptr && function(device, &asked) == kSuccess) return asked.celsius;
    // Of drivers that lack it, the way that goes with CUDA 14.
    const auto degrees = ask<unsigned>("nvmlDeviceGetTemperature", device, kOfGpu);
    return degrees ? std::optional<int>(static_cast<int>(*degrees)) : std::nullopt;
  }

  // One bit per node, of which there is one unless the GPU is as far from several.
  void read_numa_node(NvmlDevice device, GpuState& out) const {
    using NodeSet = unsigned long;  // NOLINT(google-runtime-int): as NVML has it
    const auto function =
        find<int(NvmlDevice, unsigned, NodeSet*, unsigned)>("nvmlDeviceGetMemoryAffinity");
    std::array<NodeSet, 16> nodes{};
    if (function == nullptr || function(device, static_cast<unsigned>(nodes.size()), nodes.data(),
                                        kAffinityOfNode) != kSuccess) {
      return;
    }
    int count = 0;
    for (size_t word = 0; word < nodes.size(); ++word) {
      count += std::popcount(nodes[word]);
      if (nodes[word] == 0) continue;
      out.numa_node = static_cast<int>(word * 8 * sizeof(NodeSet)) + std::countr_zero(nodes[word]);
    }
    if (count != 1) out.numa_node.reset();
  }

  void read_remaps(NvmlDevice device, GpuState& out) const {
    const auto function = find<int(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*)>(
        "nvmlDeviceGetRemappedRows");
    unsigned corrected = 0;
    unsigned uncorrected = 0;
    unsigned pending = 0;
    unsigned failed = 0;
    if (function == nullptr ||
        function(device, &corrected, &uncorrected, &pending, &failed) != kSuccess) {
      return;
    }
    out.remap_pending = pending != 0;
    out.remap_failed = failed != 0;
  }

  std::unique_ptr<void, CloseLibrary> library_;
};

GpuReader::GpuReader(const std::string& library) {
  std::unique_ptr<void, Nvml::CloseLibrary> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle) nvml_ = std::make_unique<Nvml>(std::move(handle));
}

GpuReader::~GpuReader() = default;

std::vector<GpuState> GpuReader::read() const {
  return nvml_ ? nvml_->gpus() : std::vector<GpuState>();
}

std::optional<std::vector<GpuState>> read_gpus(const std::string& library) {
  const GpuReader reader(library);
  if (!reader.opened()) return std::nullopt;
  return reader.read();
}

namespace {

// nvmlClocksEventReason*; the first is that of a GPU that has nothing to do.
constexpr std::pair<uint64_t, const char*> kReasons[] = {{0x02, "clocks set by the user"},
                                                         {0x04, "power cap"},
                                                         {0x08, "hardware slowdown"},
                                                         {0x10, "sync boost"},
                                                         {0x20, "too hot (software)"},
                                                         {0x40, "too hot (hardware)"},
                                                         {0x80, "power brake"},
                                                         {0x100, "display clocks"}};
constexpr uint64_t kFaults = 0x08 | 0x20 | 0x40 | 0x80;

}  // namespace

std::vector<std::string> throttle_reasons(uint64_t reasons) {
  std::vector<std::string> out;
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) != 0) out.emplace_back(name);
  }
  return out;
}

std::vector<std::string> throttle_faults(uint64_t reasons) {
  return throttle_reasons(reasons & kFaults);
}

std::optional<std::vector<std::string>> read_xids(const std::string& log) {
  const int file = ::open(log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::vector<std::string> out;
  std::array<char, 8192> record{};
  std::string rest;
  for (;;) {
    // A record per read; EPIPE: the one that was next has been overwritten meanwhile.
    const ssize_t count = ::read(file, record.data(), record.size());
    if (count < 0 && errno == EPIPE) continue;
    if (count <= 0) break;
    rest.append(record.data(), static_cast<size_t>(count));
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      const size_t at = rest.find("NVRM: Xid");
      if (at < end) out.push_back(printable(std::string_view(rest).substr(at, end - at)));
      rest.erase(0, end + 1);
    }
  }
  ::close(file);
  return out;
}

}  // namespace tutti::node
