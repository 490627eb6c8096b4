// AdamW over a rank's owned slices of the flat arenas (ZeRO, spec/mesh/zero.h). A single rank, or
// any without ZeRO, owns everything. Code that changes weights here notifies ShardedWeights
// (sharded_weights.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/engine/copy_queue.h"
#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/optim/adamw.h"
#include "tutti/parallel/owned_slice.h"
#include "tutti/parallel/ranks.h"
#include "tutti/parallel/state_watch.h"
#include "tutti/parallel/streamed_update.h"
#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::parallel {

class ShardedAdamw {
 public:
  // queues: where the recipe offloads the optimizer; they outlive this.
  ShardedAdamw(const spec::Recipe& recipe, const spec::ParamLayout& layout, const Ranks& ranks,
               const model::Memory& memory, const engine::CopyQueues* queues = nullptr,
               int64_t bucket_elements = spec::kBucketElements);

  const std::vector<OwnedSlice>& slices() const { return slices_; }

  // Of the owned gradients, in squared_parts() parts in memory of the stream, whose sum is meant;
  // what several ranks hold counts on one of them.
  int64_t squared_parts() const { return static_cast<int64_t>(counted_.size()); }
  void squared_norm(engine::Stream& stream, double* parts) const;

  // Where state lies on the host: its first pieces set out for the next update. Only where no one
  // writes to the state before that.
  void fetch_ahead();
  void forget_fetched();  // no update follows

  // The update of one of slices() that `scalars`, in memory of the stream, describe. A step updates
  // each once, the last one first.
  void update(engine::Stream& stream, int64_t slice, const engine::UpdateScalars* scalars);
  // After all slices, and after other ranks can have what they wait for: throws what the watch, if
  // there is one, finds in the update.
  void check_state(engine::Stream& stream, const engine::UpdateScalars* scalars);

  // The owned weights from the masters, after these or moments were written from outside.
  void state_changed(engine::Stream& stream);

  // From the next state_changed on every update also finds what has changed in its memory since the
  // one before (StateWatch), and throws then. Only of memory that the host reads. Null before that.
  void watch_state();
  StateWatch* watch() { return watch_ ? &*watch_ : nullptr; }

 private:
  spec::OptimizerConfig config_;
  std::vector<OwnedSlice> slices_;
  std::vector<engine::Vector> counted_;  // gradients in the norm
  int64_t rank_;
  engine::Vector frozen_;  // weights
  std::optional<StateWatch> watch_;
  engine::AdamwSums sums_;                  // of the slices that are updated so far, for the watch
  std::optional<StreamedUpdate> streamed_;  // of state on the host
};

}  // namespace tutti::parallel
