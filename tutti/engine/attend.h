// The common form of all attention operations: which queries attend to which keys, and the layout
// of the operands. attend_of() converts each operation of ops.h into it, for every backend, so a
// backend has one forward and one backward loop. describe() has checked the operands.
#pragma once

#include <cstdint>

#include "tutti/engine/ops.h"

namespace tutti::engine {

// Query i of a sequence (at position past + i) attends to keys 0 .. past + i of the first
// keys_end(), or with starts to those from starts[i] on; when merging this may be none. Rows of
// sequence b start at b * query_capacity + first_query in q and out, at b * key_capacity in keys
// and values.
struct Attend {
  int64_t batch = 0, queries = 0, past = 0, key_capacity = 0;
  int64_t key_count = 0;       // of a sequence; 0: past + queries
  int64_t query_capacity = 0;  // 0: queries
  int64_t first_query = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;            // E, not 0
  float scale = 0;                  // not 0
  float softcap = 0;                // 0: none
  Matrix q;                         // [B*queries, A*D]
  Matrix keys;                      // [B*key_capacity, K*D]
  Matrix values;                    // [B*key_capacity, K*E]
  Matrix out;                       // [B*queries, A*E], of q's type or f32
  Vector lse = {};                  // [B*A*query_capacity], optional
  bool merge = false;               // out (f32) and lse already cover other keys
  const int32_t* starts = nullptr;  // [B*query_capacity], optional, non-decreasing
  const int32_t* pasts = nullptr;   // [B], optional: replaces `past`
  const int32_t* pages = nullptr;   // [B, page_count], optional: pages of keys and values
  int64_t page_count = 0, page_rows = 0;

  int64_t past_of(int64_t sequence) const { return pasts == nullptr ? past : pasts[sequence]; }
  int64_t keys_end(int64_t sequence = 0) const {
    return key_count > 0 ? key_count : past_of(sequence) + queries;
  }
  // Row of key `key` in keys and values.
  int64_t key_row(int64_t sequence, int64_t key) const {
    if (pages == nullptr) return sequence * key_capacity + key;
    return pages[sequence * page_count + key / page_rows] * page_rows + key % page_rows;
  }
  // Row of query `query` in q and out.
  int64_t query_row(int64_t sequence, int64_t query) const {
    return sequence * (query_capacity > 0 ? query_capacity : queries) + first_query + query;
  }
  // Index of that query in lse.
  int64_t lse_index(int64_t sequence, int64_t head, int64_t query) const {
    return (sequence * heads + head) * (query_capacity > 0 ? query_capacity : queries) +
           first_query + query;
  }
};

Attend attend_of(const AttentionForwardArgs& args);
Attend attend_of(const AttentionBlockForwardArgs& args);
Attend attend_of(const AttentionDecodeArgs& args);

// Gradients of a block of `rows` queries and as many keys of each of `batch` sequences, from the
// log-sum-exp over all keys that the queries attend to. Causal: query i attends to keys (starts[i]
// or 0) .. i. Otherwise queries [first_query, rows) attend to keys [starts[i] or 0, key_count).
// Outputs have q's type, or are f32, which also allows accumulation. Gradients of rows outside
// every pair are zero, or unchanged when accumulating.
struct AttendBackward {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;  // E, not 0
  float scale = 0;        // not 0
  float softcap = 0;
  bool causal = true;
  int64_t first_query = 0, key_count = 0;  // only if not causal
  Matrix q, keys, values;                  // [B*rows, A*D, K*D or K*E]
  Matrix out;                              // [B*rows, A*E]; empty: delta is an input
  Matrix d_out;                            // [B*rows, A*E]
  Vector lse, delta;                       // [B*A*rows] f32
  const int32_t* starts = nullptr;         // [B*rows], optional, non-decreasing
  bool add_queries = false, add_keys = false;
  Matrix d_q, d_keys, d_values;
};

AttendBackward attend_of(const AttentionBackwardArgs& args);
AttendBackward attend_of(const AttentionBlockBackwardArgs& args);

}  // namespace tutti::engine
