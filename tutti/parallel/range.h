// A part of a flat arena.
#pragma once

#include <cstdint>

#include "tutti/base/check.h"
#include "tutti/engine/tensor.h"

namespace tutti::parallel {

// Elements [first, first + count) of `all`; empty where `all` is, as the weights of an AdamwState
// may be.
inline engine::Vector range(const engine::Vector& all, int64_t first, int64_t count) {
  if (!all) return {};
  TUTTI_CHECK(first >= 0 && first + count <= all.count, "elements {}+{} of {}", first, count,
              all.count);
  char* data = static_cast<char*>(all.data) + first * dtype_bytes(all.dtype);
  return engine::vector(data, all.dtype, count);
}

}  // namespace tutti::parallel
