// The few numbers of a step that lie in the memory of the trainer's stream, so that no operation of
// a step waits for the host: sums, what the update reads, and what the host reads of it later. All
// pointers to operands stay the same for the life of the object. What the host writes and reads is
// there once for each of the steps that may be under way at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"

namespace tutti::train {

inline constexpr int64_t kStepsUnderWay = 2;  // at most

class StepScalars {
 public:
  // squared_parts: ranges whose squared norms are summed (ShardedAdamw). segment_ends: of the
  // gradients' tensors (engine::FindNonfiniteArgs).
  StepScalars(engine::Stream& stream, int64_t squared_parts,
              const std::vector<int64_t>& segment_ends);

  double* loss_sum() const { return sums_; }
  double* divergence_sum() const { return sums_ + 1; }
  double* squared_parts() const { return sums_ + 2; }
  const engine::StepInputs* inputs() const { return inputs_; }
  engine::UpdateScalars* update() const { return update_; }
  engine::StepOutputs* outputs() const { return outputs_; }
  double* updates() const { return updates_; }
  engine::Vector segment_ends() const { return segment_ends_; }

  // Enqueued: sums become 0.
  void clear(engine::Stream& stream) const;
  // Enqueued, of step `place` (below kStepsUnderWay): what the host set with set_inputs() before.
  void send_inputs(engine::Stream& stream, int64_t place) const;
  void fetch_outputs(engine::Stream& stream, int64_t place) const;
  // Enqueued: updates applied so far. No step is under way.
  void send_updates(engine::Stream& stream, int64_t updates) const;

  // On the host; the stream must have come past the last send_inputs(), and past fetch_outputs().
  void set_inputs(const engine::StepInputs& inputs, int64_t place) const;
  engine::StepOutputs fetched(int64_t place) const;

  struct Sums {
    double loss = 0;
    double divergence = 0;
    double squared_norm = 0;  // of all parts, added in their order
  };
  // Waits for the stream.
  Sums read(engine::Stream& stream) const;

 private:
  int64_t squared_parts_;
  engine::Arena there_;  // where operands are
  engine::Arena here_;   // where the host reads and writes
  double* sums_;
  engine::StepInputs* inputs_;
  engine::UpdateScalars* update_;
  engine::StepOutputs* outputs_;
  double* updates_;
  engine::Vector segment_ends_;
  double* host_sums_;
  double* host_updates_;
  std::array<engine::StepInputs*, kStepsUnderWay> host_inputs_;
  std::array<engine::StepOutputs*, kStepsUnderWay> host_outputs_;
};

// Memory of the host that copies of the stream read and write without waiting for it.
engine::ArenaKind host_side(const engine::Stream& stream);

}  // namespace tutti::train
