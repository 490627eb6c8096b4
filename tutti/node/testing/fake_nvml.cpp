// A library of NVML's names for node/gpu_probe_test.cpp: two GPUs, of which the second is ill.
// FAKE_NVML_INIT in the environment is what nvmlInit_v2 returns.

#include <cstdio>
#include <cstdlib>
#include <cstring>

// The names are NVML's, its handles opaque.
// NOLINTBEGIN(readability-identifier-naming,performance-no-int-to-ptr)
extern "C" {

struct FakePci {
  char legacy_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct FakeMemory {
  unsigned long long total, free, used;
};

static int ill(void* device) { return device == reinterpret_cast<void*>(2) ? 1 : 0; }

int nvmlInit_v2() {
  const char* code = std::getenv("FAKE_NVML_INIT");
  return code == nullptr ? 0 : std::atoi(code);
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver/library version mismatch"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned size) {
  std::snprintf(name, size, "NVIDIA H100 80GB HBM3");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, FakePci* pci) {
  std::memset(pci, 0, sizeof(*pci));
  std::snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%s:00.0", ill(device) ? "2B" : "1A");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  *memory = {85899345920ULL, 84825604096ULL, 1073741824ULL};
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* count) {
  *count = type == 1 && counter == 0 && ill(device) ? 3 : 0;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = 1;
  *uncorrected = 0;
  *pending = ill(device);
  *failed = 0;
  return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  *reasons = ill(device) ? 0x41 : 0x05;
  return 0;
}
// Of the version that its size and number say, as the driver demands.
int nvmlDeviceGetTemperatureV(void* device, int* version_sensor_celsius) {
  if (version_sensor_celsius[0] != (12 | 1 << 24) || version_sensor_celsius[1] != 0) return 25;
  version_sensor_celsius[2] = ill(device) ? 91 : 35;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return 3; }  // not supported
int nvmlDeviceGetClockInfo(void*, int type, unsigned* megahertz) {
  *megahertz = type == 1 ? 1980 : type == 2 ? 2619 : 0;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* width) {
  *width = ill(device) ? 8 : 16;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  *millijoules = 1234500;
  return ill(device) ? 3 : 0;  // not supported
}
int nvmlDeviceGetMemoryAffinity(void* device, unsigned size, unsigned long* nodes, unsigned scope) {
  for (unsigned i = 0; i < size; ++i) nodes[i] = 0;
  if (scope != 0 || size < 2) return 2;
  nodes[1] = 2;                    // node 65
  if (ill(device)) nodes[0] |= 1;  // and node 0: near neither
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* width) {
  *width = 16;
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,performance-no-int-to-ptr)
