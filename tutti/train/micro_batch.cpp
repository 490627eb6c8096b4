#include "tutti/train/micro_batch.h"

#include <cstring>

namespace tutti::train {
namespace {

// Calls visit(first row here, first row of the whole micro-batch, rows) for every piece that this
// rank holds.
template <typename Visit>
void visit_pieces(const model::BatchShape& shape, int64_t part, const Visit& visit) {
  if (shape.parts == 1) {
    visit(0, 0, shape.rows());
    return;
  }
  const int64_t chunk = shape.tokens / 2;
  for (int64_t b = 0; b < shape.sequences; ++b) {
    const int64_t here = b * shape.tokens;
    const int64_t whole = b * shape.sequence();
    visit(here, whole + part * chunk, chunk);
    visit(here + chunk, whole + (2 * shape.parts - 1 - part) * chunk, chunk);
  }
}

}  // namespace

model::MicroBatch load_micro_batch(const model::Memory& memory, int64_t slot,
                                   model::BatchShape shape, const BatchView& view, int64_t part) {
  const auto room = [&](const char* name) { return memory.vector("batch", "batch", slot, name); };
  const auto take = [&](const char* name, const int32_t* from) {
    const engine::Vector to = room(name);
    if (from == nullptr) return to;
    visit_pieces(shape, part, [&](int64_t here, int64_t whole, int64_t rows) {
      std::memcpy(to.as<int32_t>() + here, from + whole, static_cast<size_t>(rows) * 4);
    });
    return to;
  };
  model::MicroBatch batch;
  batch.tokens = take("tokens", view.tokens);
  batch.targets = take("targets", view.targets);
  batch.first_row = view.first_row;
  if (shape.parts > 1) {
    batch.positions = room("positions");
    batch.numbers = room("numbers");
    visit_pieces(shape, part, [&](int64_t here, int64_t whole, int64_t rows) {
      for (int64_t i = 0; i < rows; ++i) {
        batch.positions.as<int32_t>()[here + i] =
            static_cast<int32_t>((whole + i) % shape.sequence());
        batch.numbers.as<int32_t>()[here + i] = static_cast<int32_t>(whole + i);
      }
    });
    return batch;
  }
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
