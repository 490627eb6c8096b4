#include "tutti/engine/stream.h"

#include <cstring>

namespace tutti::engine {

void Stream::transfer(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

void Stream::zero(void* to, int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
}

}  // namespace tutti::engine
