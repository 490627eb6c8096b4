// Attention on the host as cuDNN's documentation defines it, for cudnn.cpp.
#pragma once

#include <cstdint>

#include "tutti/base/dtype.h"

namespace tutti::engine::on_host {

// [batch, heads, rows, D], D innermost; ragged: batch element b begins at offsets[b].
template <typename T>
struct HostRows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // strides, in elements
  const int32_t* offsets = nullptr;

  T* at(int64_t b, int64_t h, int64_t r) const {
    return data + (offsets != nullptr ? offsets[b] : b * batch) + h * head + r * row;
  }
};

struct HostAttention {
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, dim = 0;
  float scale = 1;
  bool causal = false;
  const int32_t *query_counts = nullptr, *key_counts = nullptr;  // null: all
  HostRows<bf16> q, k, v, out, d_out, d_q, d_k, d_v;
  HostRows<float> stats;  // forward: data may be null
};

void attend(const HostAttention& work);
void attend_backward(const HostAttention& work);

}  // namespace tutti::engine::on_host
