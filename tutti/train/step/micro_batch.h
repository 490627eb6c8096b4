// Copies rows of the loader into a micro-batch in the arenas.
#pragma once

#include <cstdint>
#include <functional>

#include "tutti/model/block.h"
#include "tutti/model/memory.h"
#include "tutti/model/stage.h"

namespace tutti::train {

// Where one micro-batch comes from: B*T tokens and targets (< 0: ignored), and the global number of
// its first row (sample position * T). Positions and starts (model/stage.h) belong to packed
// documents; without them every sequence is one document.
struct BatchView {
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
  int64_t first_row = 0;
  const int32_t* positions = nullptr;
  const int32_t* starts = nullptr;
};
using BatchSource = std::function<BatchView()>;

// Copies `view` into slot `slot` of the batch arena, `shape.rows()` rows: of each sequence, which
// `shape.parts` ranks share, the chunks `part` and 2 * parts - 1 - part of 2 * parts
// (engine::AttentionBlockForwardArgs). With `host` the bytes go there, laid out as in the slot
// (Memory::slot), and are still to be brought into it.
struct LoadedMicroBatch {
  model::MicroBatch batch;  // views of the slot
  int64_t targets = 0;      // of this part, without those that are ignored
};
LoadedMicroBatch load_micro_batch(const model::Memory& memory, int64_t slot,
                                  model::BatchShape shape, const BatchView& view, int64_t part = 0,
                                  char* host = nullptr);

}  // namespace tutti::train
