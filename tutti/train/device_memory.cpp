#include "tutti/train/device_memory.h"

#include <algorithm>
#include <vector>

#include "tutti/engine/backend.h"

namespace tutti::train {

int64_t device_memory_bytes(const spec::Recipe& recipe, int device) {
  const engine::Backend& backend = engine::find_backend(recipe.device);
  if (&backend == &engine::cpu_backend()) return 0;
  const std::vector<engine::DeviceInfo> devices = backend.devices();
  const auto at = static_cast<size_t>(std::max(0, device));
  return at < devices.size() ? devices[at].memory_bytes : 0;
}

}  // namespace tutti::train
