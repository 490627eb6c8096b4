// The weights of a rank (ZeRO, spec/mesh/zero.h), and when they are where layers read them.
//
// ZeRO 0: always. ZeRO 1 and 2: after an update every rank has changed its slices; they are
// gathered under the next forward pass, and a layer waits for its own. ZeRO 3: the rank has a shard
// only; a layer is gathered into the buffer that layers take turns in (spec/mesh/zero_layers.h).
// The step's list of actions says when (spec/schedule/step_list.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::parallel {

class ShardedWeights {
 public:
  ShardedWeights(const spec::Recipe& recipe, const spec::ParamLayout& layout, const Ranks& ranks,
                 const model::Memory& memory, int64_t bucket_elements = spec::kBucketElements);

  // Elements of the flat arenas [first, first + count) that this rank has, of `values`, which begin
  // at `first`: rounded to the compute type. On every rank the same, else changed() must follow.
  void write(engine::Stream& stream, int64_t first, const float* values, int64_t count);

  // Starts to gather `part`, whose slices have new values: a layer, or with ZeRO 1 and 2 a bucket.
  void gather(engine::Stream& stream, int64_t part);
  // Before `layer` reads its weights.
  void need(engine::Stream& stream, int64_t layer);

  // All slices of this rank have new values, outside of a step: gathers what steps do not gather
  // themselves.
  void changed(engine::Stream& stream);
  // Until nothing is on its way.
  void wait(engine::Stream& stream);

 private:
  struct Piece {
    comm::Group* group = nullptr;
    engine::Vector mine;
    engine::Vector all;
    int64_t bucket = 0;
    comm::Ticket ticket;
  };
  struct Layer {
    spec::ZeroLayer zero_layer;  // without ZeRO 3 only the number
    std::vector<size_t> pieces;  // of pieces_
    bool here = false;           // with ZeRO 3: its buffer holds it, or is being filled with it
  };
  Layer* find(int64_t layer);  // null: none of it is ever gathered
  void start(engine::Stream& stream, Piece& piece);
  void wait(engine::Stream& stream, const Layer& layer);

  bool gathers_layers_;     // ZeRO 3
  engine::Vector weights_;  // the arena
  std::vector<spec::ShardSlice> slices_;
  std::vector<Piece> pieces_;
  std::vector<Layer> layers_;
};

}  // namespace tutti::parallel
