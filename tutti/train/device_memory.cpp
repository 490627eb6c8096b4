#include "tutti/train/device_memory.h"

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

}  // namespace tutti::train
