#include "tutti/train/step/batch_staging.h"

#include "tutti/spec/schedule/schedule.h"
#include "tutti/train/step/step_scalars.h"

namespace tutti::train {

BatchStaging::BatchStaging(const spec::Recipe& recipe, const spec::Coordinates& at,
                           const model::Memory& memory, engine::Stream& stream, bool ahead)
    : memory_(memory),
      stream_(stream),
      shape_{.sequences = recipe.batch.micro,
             .tokens = recipe.batch.sequence / recipe.parallel.cp,
             .parts = recipe.parallel.cp,
             .window = recipe.model.window},
      part_(at.cp),
      row_scale_(1 / static_cast<float>(recipe.batch.global * recipe.batch.sequence)),
      batches_(static_cast<size_t>(memory.repeats("batch", "batch"))) {
  if (stream.memory() == engine::ArenaKind::host && !ahead) return;
  const int64_t bytes = memory.slot("batch", "batch", 0).bytes;
  const int64_t count = kStepsUnderWay * spec::make_schedule(recipe).micro_batches;
  host_ = std::make_unique<engine::Arena>("batches on the host", bytes * count, host_side(stream));
  first_rows_.resize(static_cast<size_t>(count));
}

size_t BatchStaging::host_index(int64_t micro, int64_t step_slot) const {
  const auto held = static_cast<int64_t>(first_rows_.size());
  return static_cast<size_t>((step_slot * (held / kStepsUnderWay) + micro) % held);
}

char* BatchStaging::on_host(int64_t micro, int64_t step_slot) const {
  if (!host_) return nullptr;
  const int64_t bytes = memory_.slot("batch", "batch", 0).bytes;
  return static_cast<char*>(
      host_->at(static_cast<int64_t>(host_index(micro, step_slot)) * bytes, bytes));
}

int64_t BatchStaging::put(const BatchView& view, int64_t micro, int64_t step_slot) {
  const size_t slot = slot_of(micro);
  const LoadedMicroBatch loaded = load_micro_batch(memory_, static_cast<int64_t>(slot), shape_,
                                                   view, part_, on_host(micro, step_slot));
  batches_[slot] = loaded.batch;
  batches_[slot].row_scale = row_scale_;
  if (host_) first_rows_[host_index(micro, step_slot)] = view.first_row;
  return loaded.targets;
}

void BatchStaging::send(int64_t micro, int64_t step_slot) {
  if (!host_) return;
  const size_t index = slot_of(micro);
  batches_[index].first_row = first_rows_[host_index(micro, step_slot)];
  const auto slot = memory_.slot("batch", "batch", static_cast<int64_t>(index));
  stream_.transfer(slot.data, on_host(micro, step_slot), slot.bytes);
}

int64_t BatchStaging::put_and_send(const BatchView& view, int64_t micro) {
  const bool written_over = host_ && micro > 0 && host_index(micro, 0) == 0;
  if (written_over) stream_.synchronize();
  const int64_t targets = put(view, micro, 0);
  send(micro, 0);
  return targets;
}

}  // namespace tutti::train
