// Partition of a buffer over the ranks that reduce it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti::comm {

struct Part {
  int64_t begin = 0;  // elements
  int64_t count = 0;
};

// Part `index` of `count` elements over `parts`, split at cache lines; the last ones may be empty.
inline Part part_of(int64_t count, int64_t item_bytes, int index, int parts) {
  const int64_t line = std::max<int64_t>(64 / item_bytes, 1);
  const int64_t lines = (count + line - 1) / line;
  const int64_t length = (lines + parts - 1) / parts * line;
  const int64_t begin = std::min(count, index * length);
  return {begin, std::min(count - begin, length)};
}

}  // namespace tutti::comm
