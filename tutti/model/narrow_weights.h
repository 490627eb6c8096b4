// The quantized weights of a stage for products below 16 bits (NarrowProducts::weight, arena
// "narrow" of the memory map): quantized once after they have changed, for all products until they
// change again. Weights without a buffer there are quantized for each product, and not handled
// here.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"

namespace tutti::model {

class NarrowWeights {
 public:
  // Registers a product of `layer` of the model, or of spec::kHeadLayer.
  void add(int64_t layer, const Linear& linear);

  // Quantizes the trained weights of `layer`, which are in memory: action quantize of a step or
  // evaluation.
  void quantize(engine::Stream& stream, int64_t layer) const;
  // Quantizes the frozen weights of all layers, when they are set: no step does it, so that a
  // captured step is complete without it.
  void quantize_frozen(engine::Stream& stream) const;

 private:
  struct Layer {
    int64_t number = 0;
    std::vector<Linear> trained = {};
    std::vector<Linear> frozen = {};
  };
  std::vector<Layer> layers_;
};

}  // namespace tutti::model
