#include "tutti/engine/backend.h"

#include "tutti/base/error.h"

namespace tutti::engine {

const Backend& cpu_backend() {
  static const Backend backend = {
      .name = "cpu",
      .ops = cpu_ops,
      .missing = [] { return std::string(); },
      .devices = [] { return std::vector<DeviceInfo>(); },
      .free_bytes = [](int) { return int64_t{0}; },
      .make_stream = [](const StreamOptions& options) { return make_cpu_stream(options.threads); },
      .make_copy_queue = [](Stream&) { return make_cpu_copy_queue(); },
  };
  return backend;
}

const std::vector<const Backend*>& backends() {
  static const std::vector<const Backend*> all = {&cpu_backend(), &cuda_backend()};
  return all;
}

const Backend& find_backend(std::string_view name) {
  std::string known;
  for (const Backend* backend : backends()) {
    if (backend->name == name) return *backend;
    known += (known.empty() ? "" : ", ") + std::string(backend->name);
  }
  fail(ErrorKind::usage, "device: '{}' is not one of {}", name, known);
}

}  // namespace tutti::engine
