#include "tutti/train/step/step_scalars.h"

#include <cstddef>

namespace tutti::train {
namespace {

using engine::kArenaAlignment;

constexpr auto kWord = static_cast<int64_t>(sizeof(double));
// Ranks exchange them as words, of which none is converted.
constexpr auto kSumWords = static_cast<int64_t>(sizeof(StepSums)) / kWord;
static_assert(sizeof(StepSums) == 4 * sizeof(double));

int64_t ranks_of(const SumRanks& ranks) { return ranks.all == nullptr ? 1 : ranks.all->size(); }

// Parts of both arenas, each with an alignment of its own. Of the host the first ones are there for
// every step under way.
enum Part : int64_t { kInputs = 0, kOutputs = 2, kUpdate = 4, kUpdates = 5, kTotal = 6, kRest = 7 };
static_assert(kStepsUnderWay <= kOutputs - kInputs);
static_assert(sizeof(StepSums) <= kArenaAlignment);
static_assert(sizeof(engine::StepOutputs) <= kArenaAlignment);

int64_t up(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Behind them, where operands are.
struct Rest {
  Rest(int64_t ranks, int64_t squared_parts, int64_t segments)
      : parts(kRest * kArenaAlignment + up(ranks * static_cast<int64_t>(sizeof(StepSums)))),
        ends(parts + up(squared_parts * kWord)),
        bytes(ends + segments * kWord) {}
  int64_t of_ranks = kRest * kArenaAlignment;
  int64_t parts;
  int64_t ends;
  int64_t bytes;
};

template <typename T>
T* pointer_to(const engine::Arena& arena, int64_t part) {
  return static_cast<T*>(arena.at(part * kArenaAlignment, sizeof(T)));
}

}  // namespace

engine::ArenaKind host_side(const engine::Stream& stream) {
  return stream.memory() == engine::ArenaKind::device ? engine::ArenaKind::pinned
                                                      : engine::ArenaKind::host;
}

StepScalars::StepScalars(engine::Stream& stream, int64_t squared_parts,
                         const std::vector<int64_t>& segment_ends, const SumRanks& ranks)
    : ranks_(ranks),
      squared_parts_(squared_parts),
      there_("step scalars",
             Rest(ranks_of(ranks), squared_parts, static_cast<int64_t>(segment_ends.size())).bytes,
             stream.memory()),
      here_("step scalars of the host", kRest * kArenaAlignment, host_side(stream)),
      inputs_(pointer_to<engine::StepInputs>(there_, kInputs)),
      update_(pointer_to<engine::UpdateScalars>(there_, kUpdate)),
      outputs_(pointer_to<engine::StepOutputs>(there_, kOutputs)),
      updates_(pointer_to<double>(there_, kUpdates)),
      host_total_(pointer_to<StepSums>(here_, kTotal)),
      host_updates_(pointer_to<double>(here_, kUpdates)) {
  const int64_t count = ranks_of(ranks);
  const auto segments = static_cast<int64_t>(segment_ends.size());
  const Rest rest(count, squared_parts, segments);
  of_ranks_ = static_cast<StepSums*>(
      there_.at(rest.of_ranks, count * static_cast<int64_t>(sizeof(StepSums))));
  mine_ = of_ranks_ + (ranks.all == nullptr ? 0 : ranks.all->rank());
  total_ = count == 1 ? mine_ : pointer_to<StepSums>(there_, kTotal);
  parts_ = squared_parts == 1 ? &mine_->squared_norm
                              : static_cast<double*>(there_.at(rest.parts, squared_parts * kWord));
  segment_ends_ = engine::vector(there_.at(rest.ends, segments * kWord), DType::i64, segments);
  for (int64_t i = 0; i < kStepsUnderWay; ++i) {
    const auto step = static_cast<size_t>(i);
    host_inputs_[step] = pointer_to<engine::StepInputs>(here_, kInputs + i);
    host_outputs_[step] = pointer_to<engine::StepOutputs>(here_, kOutputs + i);
  }
  stream.transfer(segment_ends_.data, segment_ends.data(), segment_ends_.bytes());
  stream.synchronize();
}

void StepScalars::clear(engine::Stream& stream) const {
  stream.zero(mine_, sizeof(StepSums));
  if (squared_parts_ != 1) stream.zero(parts_, squared_parts_ * kWord);
}

void StepScalars::sum_over_ranks(engine::Stream& stream) const {
  if (squared_parts_ != 1) {
    stream.ops().add_rows(stream,
                          {.x = parts_, .rows = squared_parts_, .total = &mine_->squared_norm});
  }
  if (ranks_.counts_rows) {
    stream.transfer(&mine_->targets, &inputs_->targets, sizeof(double));
  } else {
    stream.zero(mine_, offsetof(StepSums, squared_norm));
  }
  if (total_ == mine_) return;
  const int64_t count = ranks_of(ranks_);
  ranks_.all
      ->all_gather(stream, engine::vector(mine_, DType::i64, kSumWords),
                   engine::vector(of_ranks_, DType::i64, count * kSumWords))
      .wait(stream);
  stream.ops().add_rows(
      stream, {.x = &of_ranks_->loss, .rows = count, .width = kSumWords, .total = &total_->loss});
}

void StepScalars::send_inputs(engine::Stream& stream, int64_t step_slot) const {
  stream.transfer(inputs_, host_inputs_.at(static_cast<size_t>(step_slot)),
                  sizeof(engine::StepInputs));
}

void StepScalars::fetch_outputs(engine::Stream& stream, int64_t step_slot) const {
  stream.transfer(host_outputs_.at(static_cast<size_t>(step_slot)), outputs_,
                  sizeof(engine::StepOutputs));
}

void StepScalars::send_updates(engine::Stream& stream, int64_t updates) const {
  *host_updates_ = static_cast<double>(updates);
  stream.transfer(updates_, host_updates_, sizeof(double));
}

void StepScalars::set_inputs(const engine::StepInputs& inputs, int64_t step_slot) const {
  *host_inputs_.at(static_cast<size_t>(step_slot)) = inputs;
}

engine::StepOutputs StepScalars::fetched(int64_t step_slot) const {
  return *host_outputs_.at(static_cast<size_t>(step_slot));
}

StepSums StepScalars::read(engine::Stream& stream) const {
  stream.transfer(host_total_, total_, sizeof(StepSums));
  stream.synchronize();
  return *host_total_;
}

}  // namespace tutti::train
