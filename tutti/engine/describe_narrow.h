// describe.h for the operations of narrow_ops.h.
#pragma once

#include "tutti/engine/narrow_ops.h"
#include "tutti/engine/recorder.h"

namespace tutti::engine {

OpRecord describe(const QuantizeArgs& args);
OpRecord describe(const NarrowGemmArgs& args);

// One scale for the whole tensor and none for blocks.
inline bool per_tensor(NarrowKind kind) {
  return kind == NarrowKind::e4m3 || kind == NarrowKind::e5m2;
}

}  // namespace tutti::engine
