// The loop that forward and decode share, and the layout of a thread's scratch memory.
#pragma once

#include <cstdint>

#include "tutti/engine/cpu/attention_tile.h"
#include "tutti/engine/cpu/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Query i of a sequence (its position is past + i) sees keys 0 .. past + i of those there are, or
// with starts (and no past) starts[i] .. i. Rows of sequence b start at b * query_capacity +
// first_query in q and out, at b * key_capacity in keys and values.
struct Attend {
  int64_t batch = 0, queries = 0, past = 0, key_capacity = 0;
  int64_t key_count = 0;       // of a sequence; 0: past + queries
  int64_t query_capacity = 0;  // 0: queries
  int64_t first_query = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;                  // not 0
  Matrix q;                         // [B*queries, A*D]
  Matrix keys;                      // [B*key_capacity, K*D]
  Matrix values;                    // [B*key_capacity, K*D]
  Matrix out;                       // [B*queries, A*D], of q's type or f32
  Vector lse = {};                  // [B*A*query_capacity], optional
  bool merge = false;               // out (f32) and lse hold a part of the keys already
  const int32_t* starts = nullptr;  // [B*queries], optional

  int64_t keys_end() const { return key_count > 0 ? key_count : past + queries; }
  // Row of query `query` in q and out.
  int64_t query_row(int64_t sequence, int64_t query) const {
    return sequence * (query_capacity > 0 ? query_capacity : queries) + first_query + query;
  }
  // Its place in lse.
  int64_t lse_index(int64_t sequence, int64_t head, int64_t query) const {
    return (sequence * heads + head) * (query_capacity > 0 ? query_capacity : queries) +
           first_query + query;
  }
};

// A row's result depends on its own query and keys only: not on the number of threads, nor on which
// other queries are computed with it.
void attend(CpuStream& stream, const Attend& args);

// Gradients of a block of `rows` queries and as many keys of each of `batch` sequences, from the
// log-sum-exp of all keys that the queries see. Causal: query i sees keys (starts[i] or 0) .. i.
// Otherwise queries [first_query, rows) see keys [0, key_count). Outputs are of q's type, or in
// f32, where they may be added to; what nobody sees is zero, or left alone when adding.
struct AttendBackward {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;  // not 0
  bool causal = true;
  int64_t first_query = 0, key_count = 0;  // not causal
  Matrix q, keys, values;                  // [B*rows, A*D or K*D]
  Matrix out;                              // [B*rows, A*D]; empty: delta is known
  Matrix d_out;                            // [B*rows, A*D]
  Vector lse, delta;                       // [B*A*rows] f32
  const int32_t* starts = nullptr;         // [B*rows], optional, causal
  bool add_queries = false, add_keys = false;
  Matrix d_q, d_keys, d_values;
};
void attend_backward(CpuStream& stream, const AttendBackward& args);

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
