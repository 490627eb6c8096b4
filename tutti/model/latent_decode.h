// Latent attention for generation, absorbed (DeepSeek-V2, appendix C): instead of keys and values
// of every head the cache has one row for all, y of latent_attention.h, [Dr + R]. The projection up
// is applied to queries and to what attention leaves:
//
//   score = (rotated q_h) . y[:Dr] + (Wk_h^T q_h) . y[Dr:]      out_h = Wv_h (sum of p y[Dr:])
//
// So a token costs R + Dr elements per layer (spec::cached_columns) and not A (Dn + Dr + E), and
// attention is that of A heads of queries on one of keys, whose last R columns are its values.
// More FLOPs for each pair, also of a prompt: 2 A (2 R + Dr) instead of 2 A (D + E).
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/attention.h"

namespace tutti::model {

struct LatentRows {
  engine::Matrix query_down;  // [n, Rq] c, where queries are compressed
  engine::Matrix kv;          // [n, Dr + R] c: what the cache keeps
  engine::Matrix queries;     // [n, A*D] c
  engine::Matrix absorbed;    // [n, A*(Dr+R)] c: what meets the cache
  engine::Matrix out;         // [n, A*R] c: what attention leaves

  LatentRows first(int64_t count) const;  // rows of them
};

// rows.kv and rows.absorbed of x [n, H] c at `positions` [n] i32.
void latent_decode_rows(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix x,
                        engine::Vector positions, const LatentRows& rows);

// out [n, A*E] c from rows.out.
void latent_decode_output(engine::Stream& stream, const AttentionLayer& layer,
                          const LatentRows& rows, engine::Matrix out);

// Of scores, as layers have them.
float latent_scale(const AttentionLayer& layer);

}  // namespace tutti::model
