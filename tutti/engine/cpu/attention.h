// The loop that forward and decode share, and the layout of a thread's scratch memory.
#pragma once

#include <cstdint>

#include "tutti/engine/cpu/attention_tile.h"
#include "tutti/engine/cpu/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Query i of a sequence (its position is past + i) sees keys 0 .. past + i, or with starts (and no
// past) starts[i] .. i. Rows of sequence b
// start at b * queries in q and out, at b * key_capacity in keys and values.
struct Attend {
  int64_t batch = 0, queries = 0, past = 0, key_capacity = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;                  // not 0
  Matrix q;                         // [B*queries, A*D]
  Matrix keys;                      // [B*key_capacity, K*D]
  Matrix values;                    // [B*key_capacity, K*D]
  Matrix out;                       // [B*queries, A*D]
  Vector lse = {};                  // [B*A*queries], optional
  const int32_t* starts = nullptr;  // [B*queries], optional
};

// A row's result depends on its own query and keys only: not on the number of threads, nor on which
// other queries are computed with it.
void attend(CpuStream& stream, const Attend& args);

// scale, or 1/sqrt(D) for 0. Aborts when the shapes of an operation contradict each other.
float attention_scale(float scale, int64_t head_dim);
void check_attention_heads(int64_t heads, int64_t kv_heads, int64_t head_dim);
// Aborts when starts (ops.h) of `batch` sequences of `sequence` rows are impossible. Returns twice
// the number of pairs: B*T*T without starts.
double check_attention_starts(const Vector& starts, int64_t batch, int64_t sequence);
void check_attention_matrix(const char* name, const Matrix& matrix, int64_t rows, int64_t cols,
                            DType dtype);

// Rows [first, first + rows) of head `head`.
inline TileSource head_rows(const Matrix& matrix, int64_t first, int64_t rows, int64_t head,
                            int64_t head_dim) {
  const int64_t offset = first * matrix.ld + head * head_dim;
  const char* data = static_cast<const char*>(matrix.data) + offset * dtype_bytes(matrix.dtype);
  return {data, matrix.ld, rows, head_dim};
}

// Hands out consecutive 64-byte-aligned pieces of one thread's scratch memory. Constructed over
// null it only counts: the same code that carves also measures.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <typename T>
  T* take(int64_t count) {
    char* piece = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t bytes_ = 0;
};

}  // namespace tutti::engine
