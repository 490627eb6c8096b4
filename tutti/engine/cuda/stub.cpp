// Builds without CUDA: a backend of that name reports that it is unavailable.
#include "tutti/base/error.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/device_memory.h"

namespace tutti::engine {
namespace {

constexpr const char* kMissing =
    "this build has no CUDA; build with `make cuda` or `cmake --preset cuda`";

}  // namespace

const Backend& cuda_backend() {
  static const OpTable none = {.backend = "cuda"};
  static const Backend backend = {
      .name = "cuda",
      .ops = []() -> const OpTable& { return none; },
      .missing = [] { return std::string(kMissing); },
      .devices = [] { return std::vector<DeviceInfo>(); },
      .free_bytes = [](int) -> int64_t {
        fail(ErrorKind::unsupported, "device: cuda: {}", kMissing);
      },
      .make_stream = [](const StreamOptions&) -> std::unique_ptr<Stream> {
        fail(ErrorKind::unsupported, "device: cuda: {}", kMissing);
      },
      .make_copy_queue = [](Stream&) -> std::unique_ptr<CopyQueue> {
        fail(ErrorKind::unsupported, "device: cuda: {}", kMissing);
      },
  };
  return backend;
}

void* allocate_device_memory(const std::string& name, int64_t bytes, ArenaKind /*kind*/) {
  fail(ErrorKind::unsupported, "arena {} of {} bytes: {}", name, bytes, kMissing);
}

void free_device_memory(void* /*data*/, ArenaKind /*kind*/) {}

void fill_device_memory(void* /*data*/, int /*byte*/, int64_t /*bytes*/) {}

}  // namespace tutti::engine
