#include "tutti/train/place_weights.h"

#include <cstring>

namespace tutti::train {

void place_weights(engine::Stream& stream, const model::Memory& memory, const float* master) {
  const engine::Vector weights = memory.vector("weights", "flat", 0, "flat");
  if (weights.dtype == DType::f32) {
    std::memcpy(weights.data, master, static_cast<size_t>(weights.bytes()));
    return;
  }
  // The view is read only; ops take their operands without const.
  stream.ops().convert(
      stream,
      {.x = engine::vector(const_cast<float*>(master), DType::f32, weights.count), .out = weights});
}

}  // namespace tutti::train
