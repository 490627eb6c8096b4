// Scalars of a step in the memory of the trainer's stream, so that no operation of a step waits for
// the host: sums, what the update reads, and what the host reads of it later. All pointers to
// operands stay the same for the life of the object. What the host writes and reads is there once
// for each of the steps that may be under way at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"

namespace tutti::train {

inline constexpr int64_t kStepsUnderWay = 2;  // at most

// Over the rows of a step, or those of one rank.
struct StepSums {
  double loss = 0;
  double divergence = 0;  // from the teacher, with one
  double targets = 0;     // that are not ignored
  double squared_norm = 0;
};

// The groups of the sums.
struct SumRanks {
  comm::Group* all = nullptr;  // null: alone
  bool counts_rows = true;     // of several ranks that work on the same rows, one does
};

class StepScalars {
 public:
  // squared_parts: ranges whose squared norms are summed (ShardedAdamw). segment_ends: of the
  // gradients' tensors (engine::FindNonfiniteArgs).
  StepScalars(engine::Stream& stream, int64_t squared_parts,
              const std::vector<int64_t>& segment_ends, const SumRanks& ranks = {});

  // Of this rank: what passes add to.
  double* loss_sum() const { return &mine_->loss; }
  double* divergence_sum() const { return &mine_->divergence; }
  double* squared_parts() const { return parts_; }
  // Of all ranks, after sum_over_ranks().
  const StepSums* total() const { return total_; }
  const engine::StepInputs* inputs() const { return inputs_; }
  engine::UpdateScalars* update() const { return update_; }
  engine::StepOutputs* outputs() const { return outputs_; }
  double* updates() const { return updates_; }
  engine::Vector segment_ends() const { return segment_ends_; }

  // Enqueued: sums become 0.
  void clear(engine::Stream& stream) const;
  // Enqueued: the sums of this rank, its targets as in inputs(), travel to all ranks, each of which
  // adds them in the ranks' order: all get the same bits.
  void sum_over_ranks(engine::Stream& stream) const;
  // Enqueued, of the step in `step_slot` (below kStepsUnderWay): what the host set with
  // set_inputs() before.
  void send_inputs(engine::Stream& stream, int64_t step_slot) const;
  void fetch_outputs(engine::Stream& stream, int64_t step_slot) const;
  // Enqueued: updates applied so far. No step is under way.
  void send_updates(engine::Stream& stream, int64_t updates) const;

  // On the host; the stream must have come past the last send_inputs(), and past fetch_outputs().
  void set_inputs(const engine::StepInputs& inputs, int64_t step_slot) const;
  engine::StepOutputs fetched(int64_t step_slot) const;

  // total(); waits for the stream.
  StepSums read(engine::Stream& stream) const;

 private:
  SumRanks ranks_;
  int64_t squared_parts_;
  engine::Arena there_;  // where operands are
  engine::Arena here_;   // where the host reads and writes
  engine::StepInputs* inputs_ = nullptr;
  engine::UpdateScalars* update_ = nullptr;
  engine::StepOutputs* outputs_ = nullptr;
  double* updates_ = nullptr;
  StepSums* of_ranks_ = nullptr;  // in their order
  StepSums* mine_ = nullptr;      // of these, this rank's
  StepSums* total_ = nullptr;     // alone: mine_
  double* parts_ = nullptr;       // of mine_->squared_norm; of one part it is that
  engine::Vector segment_ends_;
  StepSums* host_total_ = nullptr;
  double* host_updates_ = nullptr;
  std::array<engine::StepInputs*, kStepsUnderWay> host_inputs_ = {};
  std::array<engine::StepOutputs*, kStepsUnderWay> host_outputs_ = {};
};

// Memory of the host that copies of the stream read and write without waiting for it.
engine::ArenaKind host_side(const engine::Stream& stream);

}  // namespace tutti::train
