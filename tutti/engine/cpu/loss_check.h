// The check of the targets of cross-entropies.
#pragma once

#include <cstdint>

#include "tutti/base/check.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

inline void check_targets(const char* op, const Vector& targets, int64_t vocabulary) {
  for (int64_t r = 0; r < targets.count; ++r) {
    const int64_t target = targets.as<int32_t>()[r];
    TUTTI_CHECK(target < vocabulary, "{}: target {} of row {} is not below {}", op, target, r,
                vocabulary);
  }
}

}  // namespace tutti::engine
