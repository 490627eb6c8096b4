// AdamW over what a rank owns of the flat arenas (ZeRO, spec/zero.h). Alone, or without ZeRO, it
// owns everything. Who changes weights here tells ShardedWeights (sharded_weights.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/optim/adamw.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/params.h"
#include "tutti/spec/recipe.h"
#include "tutti/spec/zero.h"

namespace tutti::parallel {

// Owned elements that lie together in the flat arenas and in the shard.
struct OwnedSlice {
  spec::ShardSlice place;
  optim::AdamwState state;  // views of them; state.weights is empty in f32 runs
};

class ShardedAdamw {
 public:
  ShardedAdamw(const spec::Recipe& recipe, const spec::ParamLayout& layout, const Ranks& ranks,
               const model::Memory& memory, int64_t bucket_elements = spec::kBucketElements);

  const std::vector<OwnedSlice>& slices() const { return slices_; }

  // Of the owned gradients; what several ranks hold counts on one of them.
  double squared_norm(engine::Stream& stream) const;

  // Updates the owned elements.
  void update(engine::Stream& stream, double learning_rate, double clip, int64_t step);

  // The owned weights from the masters, after these were written from outside.
  void masters_changed(engine::Stream& stream);

 private:
  spec::OptimizerConfig config_;
  std::vector<OwnedSlice> slices_;
  std::vector<engine::Vector> counted_;  // gradients in the norm
};

}  // namespace tutti::parallel
