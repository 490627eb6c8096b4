#include "tutti/train/step/device_memory.h"

#include <algorithm>
#include <vector>

#include "tutti/engine/backend.h"

namespace tutti::train {

int64_t ranks_per_device(int64_t ranks_here, int64_t devices) {
  if (devices <= 0) return 1;
  return std::max<int64_t>(1, (ranks_here + devices - 1) / devices);
}

int64_t device_memory_bytes(const spec::Recipe& recipe, int device, int64_t ranks_here) {
  const engine::Backend& backend = engine::find_backend(recipe.device);
  if (&backend == &engine::cpu_backend()) return 0;
  const std::vector<engine::DeviceInfo> devices = backend.devices();
  const auto at = static_cast<size_t>(std::max(0, device));
  if (at >= devices.size()) return 0;
  return devices[at].memory_bytes /
         ranks_per_device(ranks_here, static_cast<int64_t>(devices.size()));
}

int64_t least_device_bytes(int64_t own_bytes, comm::Group* world) {
  if (own_bytes == 0 || world == nullptr) return own_bytes;
  const auto host = engine::cpu_backend().make_stream({.threads = 1});
  int64_t most_negative = -own_bytes;  // there is no minimum among the reductions
  const engine::Vector bytes = engine::vector(&most_negative, DType::i64, 1);
  world->all_reduce(*host, bytes, bytes, comm::Reduce::max).wait(*host);
  return -most_negative;
}

}  // namespace tutti::train
