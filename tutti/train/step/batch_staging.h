// Stages the micro-batches of a step into the slots of the memory map's arena "batch", which they
// share in turn. Where the stream works on memory of the host they are written there at once. Else,
// or where steps run ahead, all of a step are written to the host first, in a slot of its own for
// each step that may be under way, and each is copied into its slot when its turn comes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/micro_batch.h"

namespace tutti::train {

class BatchStaging {
 public:
  // Memory and stream outlive it. `ahead`: as for a device, whatever the stream.
  BatchStaging(const spec::Recipe& recipe, const spec::Coordinates& at, const model::Memory& memory,
               engine::Stream& stream, bool ahead);

  // Whether a step's micro-batches are all put before the first one is sent.
  bool ahead() const { return host_ != nullptr; }

  // Writes micro-batch `micro` of the step in `step_slot`. Returns its targets, without those that
  // are ignored.
  int64_t put(const BatchView& view, int64_t micro, int64_t step_slot);
  // Enqueues what brings it into its slot, if it is not there.
  void send(int64_t micro, int64_t step_slot);
  // Both, of passes that are not steps (evaluation) and may have more micro-batches than one: waits
  // for the stream before it writes over what that may still read.
  int64_t put_and_send(const BatchView& view, int64_t micro);

  // What was sent, from then on until its slot is taken by another.
  const model::MicroBatch& batch(int64_t micro) const { return batches_[slot_of(micro)]; }

 private:
  size_t slot_of(int64_t micro) const { return static_cast<size_t>(micro) % batches_.size(); }
  size_t host_index(int64_t micro, int64_t step_slot) const;
  char* on_host(int64_t micro, int64_t step_slot) const;  // null: not ahead

  const model::Memory& memory_;
  engine::Stream& stream_;
  model::BatchShape shape_;
  int64_t part_;                            // of each sequence: this rank's index along cp
  float row_scale_;                         // model::MicroBatch
  std::vector<model::MicroBatch> batches_;  // per slot
  std::unique_ptr<engine::Arena> host_;
  std::vector<int64_t> first_rows_;  // of those on the host
};

}  // namespace tutti::train
