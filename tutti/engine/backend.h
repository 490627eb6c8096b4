// The backends that a recipe's `device` selects: streams, and properties of their devices. In a
// build without a backend, a stub source file reports that it is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/engine/copy_queue.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {

struct StreamOptions {
  int threads = 0;    // of the host; 0: one per available core
  int device = 0;     // index of the device
  bool tf32 = false;  // matrix products of f32 may round operands to 10 fraction bits (TF32)
  // Bitwise reproducible; otherwise sums may run in the fastest order.
  bool deterministic = true;
  bool blocking = false;  // calls return after the operation is complete, so a fault names it
  // Folder that caches measured algorithm choices across processes; empty: no cache.
  std::string tuning_folder = {};
};

struct DeviceInfo {
  std::string name;          // product name of the vendor
  std::string architecture;  // such as "9.0"
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  std::string pci;  // "0000:00:04.0"
  std::string driver, runtime;
};

struct Backend {
  const char* name = "";  // as in recipes
  const OpTable& (*ops)() = nullptr;
  // Why no stream can be created here, in one line ("no GPU"); empty if streams can be created.
  std::string (*missing)() = nullptr;
  // Lists the devices without creating a context on any: a context takes device memory for the
  // lifetime of the process, and fails where another process holds the device exclusively.
  std::vector<DeviceInfo> (*devices)() = nullptr;
  // Free memory of a device. Creates a context on it for this thread.
  int64_t (*free_bytes)(int device) = nullptr;
  // Throws unsupported with missing() if no stream can be created.
  std::unique_ptr<Stream> (*make_stream)(const StreamOptions& options) = nullptr;
  // `stream` must come from make_stream of this backend.
  std::unique_ptr<CopyQueue> (*make_copy_queue)(Stream& stream) = nullptr;
};

const Backend& cpu_backend();
const Backend& cuda_backend();

const std::vector<const Backend*>& backends();
// Throws usage for an unknown name, listing the known ones.
const Backend& find_backend(std::string_view name);

}  // namespace tutti::engine
