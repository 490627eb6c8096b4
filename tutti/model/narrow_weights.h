// The weights of a stage as products below 16 bits read them (NarrowProducts::weight, arena
// "narrow" of the memory map): quantized once after they have changed, for all products that read
// them until they change again. Weights without a place there are quantized for each product, and
// are no concern of this.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"

namespace tutti::model {

class NarrowWeights {
 public:
  // A product of `layer` of the model, or of spec::kHeadLayer.
  void add(int64_t layer, const Linear& linear);

  // The trained weights of `layer`, which are there: action quantize of a step or evaluation.
  void quantize(engine::Stream& stream, int64_t layer) const;
  // The frozen ones of all layers, when they are set: no step does it, so that none that was
  // recorded lacks it.
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
