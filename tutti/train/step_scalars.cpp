#include "tutti/train/step_scalars.h"

namespace tutti::train {
namespace {

using engine::kArenaAlignment;

// Parts of both arenas, each with an alignment of its own; sums are behind them. Of the host the
// first ones are there for every step under way.
enum Part : int64_t { kInputs = 0, kOutputs = 2, kUpdate = 4, kUpdates = 5, kSums = 6 };
static_assert(kStepsUnderWay <= kOutputs - kInputs);

int64_t sums_bytes(int64_t squared_parts) {
  return (2 + squared_parts) * static_cast<int64_t>(sizeof(double));
}

int64_t up(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

template <typename T>
T* place(const engine::Arena& arena, int64_t part) {
  return static_cast<T*>(arena.at(part * kArenaAlignment, sizeof(T)));
}

}  // namespace

engine::ArenaKind host_side(const engine::Stream& stream) {
  return stream.memory() == engine::ArenaKind::device ? engine::ArenaKind::pinned
                                                      : engine::ArenaKind::host;
}

StepScalars::StepScalars(engine::Stream& stream, int64_t squared_parts,
                         const std::vector<int64_t>& segment_ends)
    : squared_parts_(squared_parts),
      there_("step scalars",
             kSums * kArenaAlignment + up(sums_bytes(squared_parts)) +
                 static_cast<int64_t>(segment_ends.size() * sizeof(int64_t)),
             stream.memory()),
      here_("step scalars of the host", kSums * kArenaAlignment + sums_bytes(squared_parts),
            host_side(stream)),
      sums_(static_cast<double*>(there_.at(kSums * kArenaAlignment, sums_bytes(squared_parts)))),
      inputs_(place<engine::StepInputs>(there_, kInputs)),
      update_(place<engine::UpdateScalars>(there_, kUpdate)),
      outputs_(place<engine::StepOutputs>(there_, kOutputs)),
      updates_(place<double>(there_, kUpdates)),
      host_sums_(
          static_cast<double*>(here_.at(kSums * kArenaAlignment, sums_bytes(squared_parts)))),
      host_updates_(place<double>(here_, kUpdates)) {
  for (int64_t i = 0; i < kStepsUnderWay; ++i) {
    const auto step = static_cast<size_t>(i);
    host_inputs_[step] = place<engine::StepInputs>(here_, kInputs + i);
    host_outputs_[step] = place<engine::StepOutputs>(here_, kOutputs + i);
  }
  const auto ends = static_cast<int64_t>(segment_ends.size());
  segment_ends_ =
      engine::vector(there_.at(kSums * kArenaAlignment + up(sums_bytes(squared_parts)), ends * 8),
                     DType::i64, ends);
  stream.transfer(segment_ends_.data, segment_ends.data(), segment_ends_.bytes());
  stream.synchronize();
}

void StepScalars::clear(engine::Stream& stream) const {
  stream.zero(sums_, sums_bytes(squared_parts_));
}

void StepScalars::send_inputs(engine::Stream& stream, int64_t place) const {
  stream.transfer(inputs_, host_inputs_.at(static_cast<size_t>(place)), sizeof(engine::StepInputs));
}

void StepScalars::fetch_outputs(engine::Stream& stream, int64_t place) const {
  stream.transfer(host_outputs_.at(static_cast<size_t>(place)), outputs_,
                  sizeof(engine::StepOutputs));
}

void StepScalars::send_updates(engine::Stream& stream, int64_t updates) const {
  *host_updates_ = static_cast<double>(updates);
  stream.transfer(updates_, host_updates_, sizeof(double));
}

void StepScalars::set_inputs(const engine::StepInputs& inputs, int64_t place) const {
  *host_inputs_.at(static_cast<size_t>(place)) = inputs;
}

engine::StepOutputs StepScalars::fetched(int64_t place) const {
  return *host_outputs_.at(static_cast<size_t>(place));
}

StepScalars::Sums StepScalars::read(engine::Stream& stream) const {
  stream.transfer(host_sums_, sums_, sums_bytes(squared_parts_));
  stream.synchronize();
  Sums out;
  out.loss = host_sums_[0];
  out.divergence = host_sums_[1];
  for (int64_t i = 0; i < squared_parts_; ++i) out.squared_norm += host_sums_[2 + i];
  return out;
}

}  // namespace tutti::train
