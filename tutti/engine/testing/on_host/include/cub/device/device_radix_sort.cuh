// The sort of the CUDA backend, on the host (on_host/grid.h).
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tutti/engine/testing/on_host/queue.h"

namespace cub {

struct DeviceRadixSort {
  // Stable sort of pairs by the bits [first_bit, end_bit) of their keys. Without `work` it returns
  // the required bytes.
  template <typename Key, typename Value>
  static cudaError_t SortPairs(void* work, size_t& bytes, const Key* keys, Key* sorted_keys,
                               const Value* values, Value* sorted_values, int64_t count,
                               int first_bit, int end_bit, cudaStream_t stream) {
    const size_t needed = static_cast<size_t>(count) * sizeof(Key) + 1;
    if (work == nullptr) {
      bytes = needed;
      return cudaSuccess;
    }
    if (bytes < needed) return cudaErrorInvalidValue;
    tutti::engine::on_host::enqueue(stream, [=] {
      std::fill_n(static_cast<unsigned char*>(work), needed, static_cast<unsigned char>(0xff));
      const auto part = [&](size_t i) {
        return static_cast<Key>(keys[i] << (8 * sizeof(Key) - static_cast<size_t>(end_bit))) >>
               (8 * sizeof(Key) - static_cast<size_t>(end_bit - first_bit));
      };
      std::vector<size_t> order(static_cast<size_t>(count));
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return part(a) < part(b); });
      for (size_t i = 0; i < order.size(); ++i) {
        sorted_keys[i] = keys[order[i]];
        sorted_values[i] = values[order[i]];
      }
    });
    return cudaSuccess;
  }
};

}  // namespace cub
