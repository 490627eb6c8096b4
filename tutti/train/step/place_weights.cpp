#include "tutti/train/step/place_weights.h"

#include <algorithm>
#include <vector>

namespace tutti::train {

void place_weights(engine::Stream& stream, const model::Memory& memory, const float* master) {
  const engine::Vector weights = memory.vector("weights", "flat", 0, "flat");
  if (weights.dtype == DType::f32) {
    stream.transfer(weights.data, master, weights.bytes());
    return;
  }
  if (stream.memory() == engine::ArenaKind::device) {
    std::vector<bf16> rounded(static_cast<size_t>(weights.count));
    std::transform(master, master + weights.count, rounded.begin(), to_bf16);
    return stream.transfer(weights.data, rounded.data(), weights.bytes());
  }
  // The view is read only; ops take their operands without const.
  stream.ops().convert(
      stream,
      {.x = engine::vector(const_cast<float*>(master), DType::f32, weights.count), .out = weights});
}

}  // namespace tutti::train
