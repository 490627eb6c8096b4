#include "tutti/train/micro_batch.h"

#include <cstring>

namespace tutti::train {

model::MicroBatch load_micro_batch(const model::Memory& memory, int64_t slot,
                                   model::BatchShape shape, const BatchView& view) {
  const auto take = [&](const char* name, const int32_t* from) {
    engine::Vector to = memory.vector("batch", "batch", slot, name);
    if (from != nullptr) std::memcpy(to.data, from, static_cast<size_t>(to.bytes()));
    return to;
  };
  model::MicroBatch batch;
  batch.tokens = take("tokens", view.tokens);
  batch.targets = take("targets", view.targets);
  batch.first_row = view.first_row;
  if (!memory.has("batch", "batch", "starts")) return batch;
  batch.positions = take("positions", view.positions);
  batch.starts = take("starts", view.starts);
  if (view.starts == nullptr) {
    for (int64_t row = 0; row < shape.rows(); ++row) {
      batch.positions.as<int32_t>()[row] = static_cast<int32_t>(row % shape.tokens);
      batch.starts.as<int32_t>()[row] = 0;
    }
  }
  return batch;
}

}  // namespace tutti::train
