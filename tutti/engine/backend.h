// The backends that a recipe's `device` names: where streams run and what is known of the device.
// A backend that this build lacks is one stub file that says so.
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
  int device = 0;     // which of several accelerators
  bool tf32 = false;  // products of f32 matrices may round operands to 10 bits of fraction
  // The same bits each time; else sums may be in whatever order is fastest.
  bool deterministic = true;
  bool blocking = false;  // an operation is done when its call returns: faults name it
  // Where measured choices of algorithms are kept for other processes; empty: they are not.
  std::string tuning_folder = {};
};

struct DeviceInfo {
  std::string name;          // as its maker calls it
  std::string architecture;  // such as "9.0"
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  std::string pci;  // "0000:00:04.0"
  std::string driver, runtime;
};

struct Backend {
  const char* name = "";  // as in recipes
  const OpTable& (*ops)() = nullptr;
  // Why no stream can be made here, in one line ("no GPU"); empty when one can.
  std::string (*missing)() = nullptr;
  // What there is. Takes none of them into use: that costs memory on each, for as long as the
  // process lives, and fails where another process has it for itself.
  std::vector<DeviceInfo> (*devices)() = nullptr;
  // Of the memory of one of them, which this thread takes into use by asking.
  int64_t (*free_bytes)(int device) = nullptr;
  // Throws unsupported with missing() where one cannot be made.
  std::unique_ptr<Stream> (*make_stream)(const StreamOptions& options) = nullptr;
  // Of a stream that it made.
  std::unique_ptr<CopyQueue> (*make_copy_queue)(Stream& stream) = nullptr;
};

const Backend& cpu_backend();
const Backend& cuda_backend();

const std::vector<const Backend*>& backends();
// Throws usage, naming those there are.
const Backend& find_backend(std::string_view name);

}  // namespace tutti::engine
