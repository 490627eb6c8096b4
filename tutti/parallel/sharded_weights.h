// The weights of a rank (ZeRO, spec/zero.h), and when they are where layers read them.
//
// ZeRO 0: always. ZeRO 1 and 2: after an update every rank has changed its slices; they are
// gathered under the next forward pass, and a layer waits for its own. ZeRO 3: the rank has a shard
// only; a layer is gathered into the buffer that layers take turns in (spec/zero_layers.h) while
// the one before it in the order of a pass is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/params.h"
#include "tutti/spec/recipe.h"
#include "tutti/spec/schedule.h"
#include "tutti/spec/zero.h"
#include "tutti/spec/zero_layers.h"

namespace tutti::parallel {

class ShardedWeights {
 public:
  ShardedWeights(const spec::Recipe& recipe, const spec::ParamLayout& layout, const Ranks& ranks,
                 const model::Memory& memory, int64_t bucket_elements = spec::kBucketElements);

  // Elements of the flat arenas [first, first + count) that this rank has, of `values`, which begin
  // at `first`: rounded to the compute type. On every rank the same, else weights must be
  // updated().
  void write(engine::Stream& stream, int64_t first, const float* values, int64_t count);

  // This rank's slices have new values, or one of them; the others follow then, in descending
  // order. ZeRO 1 and 2 start to gather them.
  void updated(engine::Stream& stream);
  void updated(engine::Stream& stream, const spec::ShardSlice& slice);

  // What comes next: all passes of `actions`, or forward passes for evaluation. ZeRO 3 gathers in
  // this order from now on.
  void begin_step(const std::vector<spec::Action>& actions);
  void begin_forward();

  // Before `layer` reads its weights.
  void need(engine::Stream& stream, int64_t layer);
  // Until nothing is on its way.
  void wait(engine::Stream& stream);

 private:
  struct Piece {
    comm::Group* group = nullptr;
    engine::Vector mine;
    engine::Vector all;
    int64_t first = 0;  // of `mine`, in the flat arenas
    comm::Ticket ticket;
  };
  struct Layer {
    spec::ZeroLayer place;       // without ZeRO 3 only the number
    std::vector<size_t> pieces;  // of pieces_
    bool here = false;           // with ZeRO 3: its buffer holds it, or is being filled with it
  };
  size_t find(int64_t layer) const;
  void begin();
  void add_forward(int64_t chunk);
  void add_backward(int64_t chunk);
  void start(engine::Stream& stream, Piece& piece);
  void start_next(engine::Stream& stream);
  void wait(engine::Stream& stream, const Layer& layer);

  spec::Mesh mesh_;
  spec::Coordinates at_;
  int64_t model_layers_;
  bool gathers_layers_;     // ZeRO 3
  engine::Vector weights_;  // the arena
  std::vector<spec::ShardSlice> slices_;
  std::vector<Piece> pieces_;
  std::vector<Layer> layers_;
  std::vector<size_t> order_;  // of layers to gather
  size_t next_ = 0;            // of it, the first that nobody has needed yet
  bool next_started_ = false;
};

}  // namespace tutti::parallel
