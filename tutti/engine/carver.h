// Bump allocator that hands out consecutive aligned pieces of scratch memory. With a null base it
// only counts, so the same code also measures the size it needs.
#pragma once

#include <cstdint>

namespace tutti::engine {

class Carver {
 public:
  // `base` is aligned to `alignment`, and so is every piece.
  explicit Carver(void* base, int64_t alignment = 64)
      : base_(static_cast<char*>(base)), alignment_(alignment) {}
  template <typename T>
  T* take(int64_t count) {
    char* piece = base_ == nullptr ? nullptr : base_ + bytes_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    bytes_ += (bytes + alignment_ - 1) / alignment_ * alignment_;
    return reinterpret_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t alignment_;
  int64_t bytes_ = 0;
};

}  // namespace tutti::engine
