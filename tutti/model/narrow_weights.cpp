#include "tutti/model/narrow_weights.h"

#include "tutti/model/linear.h"

namespace tutti::model {

void NarrowWeights::add(int64_t layer, const Linear& linear) {
  if (!linear.narrow.weight) return;
  if (layers_.empty() || layers_.back().number != layer) layers_.push_back({.number = layer});
  Layer& last = layers_.back();
  (linear.d_weight ? last.trained : last.frozen).push_back(linear);
}

void NarrowWeights::quantize(engine::Stream& stream, int64_t layer) const {
  for (const Layer& one : layers_) {
    if (one.number != layer) continue;
    for (const Linear& linear : one.trained) quantize_weight(stream, linear);
  }
}

void NarrowWeights::quantize_frozen(engine::Stream& stream) const {
  for (const Layer& layer : layers_) {
    for (const Linear& linear : layer.frozen) quantize_weight(stream, linear);
  }
}

}  // namespace tutti::model
