#include "tutti/train/step/micro_batch.h"

#include <algorithm>
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

// Of the two chunks of a sequence that rank `part` has, how many rows come before `position`.
int64_t rows_before(const model::BatchShape& shape, int64_t part, int64_t position) {
  const int64_t chunk = shape.tokens / 2;
  int64_t rows = 0;
  for (const int64_t number : {part, 2 * shape.parts - 1 - part}) {
    rows += std::clamp<int64_t>(position - number * chunk, 0, chunk);
  }
  return rows;
}

// The first token of its sequence that row `row` of the whole micro-batch sees through the window.
int64_t window_start(const model::BatchShape& shape, const BatchView& view, int64_t row) {
  const int64_t document = view.starts == nullptr ? 0 : view.starts[row];
  return std::max(document, row % shape.sequence() - shape.window + 1);
}

}  // namespace

LoadedMicroBatch load_micro_batch(const model::Memory& memory, int64_t slot,
                                  model::BatchShape shape, const BatchView& view, int64_t part,
                                  char* host) {
  const char* slot_data = memory.slot("batch", "batch", slot).data;
  const auto room = [&](const char* name) { return memory.vector("batch", "batch", slot, name); };
  const auto writable = [&](const engine::Vector& in_slot) {
    if (host == nullptr) return in_slot.as<int32_t>();
    return reinterpret_cast<int32_t*>(host + (static_cast<const char*>(in_slot.data) - slot_data));
  };
  const auto take = [&](const char* name, const int32_t* from) {
    const engine::Vector to = room(name);
    if (from == nullptr) return to;
    int32_t* out = writable(to);
    visit_pieces(shape, part, [&](int64_t here, int64_t whole, int64_t rows) {
      std::memcpy(out + here, from + whole, static_cast<size_t>(rows) * 4);
    });
    return to;
  };
  LoadedMicroBatch loaded;
  model::MicroBatch& batch = loaded.batch;
  batch.tokens = take("tokens", view.tokens);
  batch.targets = take("targets", view.targets);
  const int32_t* targets = writable(batch.targets);
  loaded.targets = std::count_if(targets, targets + batch.targets.count,
                                 [](int32_t target) { return target >= 0; });
  batch.first_row = view.first_row;
  if (memory.has("batch", "batch", "window_starts")) {
    batch.window_starts = room("window_starts");
    int32_t* to = writable(batch.window_starts);
    for (int64_t other = 0; other < shape.parts; ++other, to += shape.rows()) {
      visit_pieces(shape, part, [&](int64_t here, int64_t whole, int64_t rows) {
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t start = window_start(shape, view, whole + i);
          to[here + i] =
              static_cast<int32_t>(shape.parts == 1 ? start : rows_before(shape, other, start));
        }
      });
    }
  }
  if (shape.parts > 1) {
    batch.positions = room("positions");
    batch.numbers = room("numbers");
    int32_t* positions = writable(batch.positions);
    int32_t* numbers = writable(batch.numbers);
    visit_pieces(shape, part, [&](int64_t here, int64_t whole, int64_t rows) {
      for (int64_t i = 0; i < rows; ++i) {
        positions[here + i] = view.positions != nullptr
                                  ? view.positions[whole + i]
                                  : static_cast<int32_t>((whole + i) % shape.sequence());
        numbers[here + i] = static_cast<int32_t>(whole + i);
      }
    });
    if (!memory.has("batch", "batch", "starts")) return loaded;
    batch.starts = room("starts");
    int32_t* starts = writable(batch.starts);
    for (int64_t other = 0; other < shape.parts; ++other) {
      int32_t* to = starts + other * shape.rows();
      visit_pieces(shape, part, [&](int64_t here, int64_t whole, int64_t rows) {
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t start = view.starts == nullptr ? 0 : view.starts[whole + i];
          to[here + i] = static_cast<int32_t>(rows_before(shape, other, start));
        }
      });
    }
    return loaded;
  }
  if (!memory.has("batch", "batch", "starts")) return loaded;
  batch.positions = take("positions", view.positions);
  batch.starts = take("starts", view.starts);
  if (view.starts == nullptr) {
    int32_t* positions = writable(batch.positions);
    std::fill_n(writable(batch.starts), shape.rows(), 0);
    for (int64_t row = 0; row < shape.rows(); ++row) {
      positions[row] = static_cast<int32_t>(row % shape.tokens);
    }
  }
  return loaded;
}

}  // namespace tutti::train
