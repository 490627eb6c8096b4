// The operations of attention: part of the table in ops.h, whose rules and shape letters hold here
// too.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Causal attention of B sequences of T tokens; heads are column groups of the row: qkv[N, (A+2K)*D]
// = A query heads | K key heads | K value heads. Query head a uses key/value head a / (A/K).
// out[N, A*D]; lse[B*A*T] f32 = log-sum-exp of the scaled scores, laid out [B, A, T].
// No T x T matrix is stored. scale 0 means 1/sqrt(D). With softcap > 0 a scaled score s counts as
// softcap * tanh(s / softcap) (Gemma 2), here and in all operations below; on the CPU only.
//
// Row t of a sequence sees rows starts[t] .. t of it, or 0 .. t without `starts`. Starts do not
// fall within a sequence, and 0 <= starts[t] <= t: for documents packed one after another, each row
// has the first row of its document; with a sliding window of W tokens max(0, t - W + 1), on the
// CPU only. Tiles that no row sees cost nothing. Work is counted in pairs = sum over all rows of (t
// - starts[t] + 1/2), which is the sum of len^2 / 2 over documents and B*T*T/2 without `starts`.
// record "attention_forward": dims (B, T, A, K, D); flops 4*A*D*pairs (causal half of 4*B*A*T*T*D).
struct AttentionForwardArgs {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  float softcap = 0;
  Matrix qkv;          // [N, (A+2K)*D] c
  Matrix out;          // [N, A*D] c
  Vector lse = {};     // [B*A*T] f32; may be empty when no backward follows
  Vector starts = {};  // [N] i32, optional
};

// d_qkv from d_out. delta[B*A*T] f32 is scratch for rowsum(d_out * out).
// record "attention_backward": dims (B, T, A, K, D); flops 10*A*D*pairs (five half products: the
// recomputed scores are hardware work, not model work; model FLOPs are 8*A*D*pairs).
struct AttentionBackwardArgs {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  float softcap = 0;
  Matrix qkv;          // [N, (A+2K)*D] c
  Matrix out;          // [N, A*D] c
  Matrix d_out;        // [N, A*D] c
  Vector lse;          // [B*A*T] f32
  Vector delta;        // [B*A*T] f32, overwritten
  Matrix d_qkv;        // [N, (A+2K)*D] c
  Vector starts = {};  // [N] i32, optional: those of forward
};

// Causal attention of sequences that are divided among ranks (ring attention, Liu et al. 2023): the
// queries of one rank against the keys of one rank. A sequence of blocks * n tokens is cut into
// 2 * blocks chunks; rank i has chunks i and 2 * blocks - 1 - i, one after the other, so that all
// ranks have equal work. So of its own keys row t sees rows 0 .. t; of a rank before it all rows
// see the first chunk; of a rank behind it the rows of the second chunk see all. Each of these is
// half of the pairs, pairs = B*n*n/2. With packed documents rows see less: starts says for each row
// the first row of these keys that is of its document or later (n: none), not falling within a
// sequence and at most t of the own keys; pairs are then those that are left.
//
// What is seen so far is kept normalised, in f32: total = softmax-weighted values and lse =
// log-sum-exp of the scaled scores; a further block of keys is merged into them. The first block is
// that of the rank itself (key_block = query_block): total and lse are then overwritten.
// record "attention_block_forward": dims (B, n, A, K, D, first); flops 4*A*D*pairs; bytes: all
// operands, total and lse twice but for the first.
struct AttentionBlockForwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  float softcap = 0;
  int64_t blocks = 1, query_block = 0, key_block = 0;
  Matrix q;       // [B*n, A*D] c
  Matrix keys;    // [B*n, K*D] c
  Matrix values;  // [B*n, K*D] c
  bool first = true;
  Matrix total;        // [B*n, A*D] f32
  Vector lse;          // [B*A*n] f32, laid out [B, A, n]
  Vector starts = {};  // [B*n] i32, optional
};

// The gradients of one block's queries, keys and values from d_out, in f32; overwritten or, where
// asked for, added to. lse is that of all blocks. With the rank's own block delta = rowsum(d_out *
// out) is computed, the others read it. record "attention_block_backward": dims (B, n, A, K, D,
// first: the own block); flops 10*A*D*pairs; bytes: all operands, what is added to twice.
struct AttentionBlockBackwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  float softcap = 0;
  int64_t blocks = 1, query_block = 0, key_block = 0;
  Matrix q;       // [B*n, A*D] c
  Matrix keys;    // [B*n, K*D] c
  Matrix values;  // [B*n, K*D] c
  Matrix out;     // [B*n, A*D] c, of all blocks; read with the own one, by fused kernels with each
  Matrix d_out;   // [B*n, A*D] c
  Vector lse;     // [B*A*n] f32
  Vector delta;   // [B*A*n] f32
  bool add_queries = false;
  bool add_keys = false;  // and values
  Matrix d_q;             // [B*n, A*D] f32
  Matrix d_keys;          // [B*n, K*D] f32
  Matrix d_values;        // [B*n, K*D] f32
  Vector starts = {};     // [B*n] i32, optional
};

// Attention of `queries` new tokens per sequence against a cache of keys and values, for
// generation. The new keys and values must already be in the cache: sequence b has
// past + queries valid rows; query i sees rows 0 .. past+i. q rows are [B*queries, A*D].
//
// On the CPU alone sequences may have a past each, and the rows of a sequence may lie in pages of
// page_rows rows anywhere in the cache: row r is row r % page_rows of page pages[b, r / page_rows].
// Neither changes any bit of the result.
//
// record "attention_decode": dims (B, queries, past, A, K, D), past being the longest;
// flops 4*A*queries*(past+queries)*D of each sequence.
struct AttentionDecodeArgs {
  int64_t batch = 0, queries = 0, past = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t capacity = 0;  // rows of the cache per sequence; with pages, of its row of `pages`
  float scale = 0;
  float softcap = 0;
  Matrix q;            // [B*queries, A*D] c
  Matrix keys;         // [B*capacity, K*D] c
  Matrix values;       // [B*capacity, K*D] c
  Matrix out;          // [B*queries, A*D] c
  Vector starts = {};  // [B*queries] i32, optional: the first row that each query sees, not falling
  Vector lse = {};     // [B*A*queries] f32, optional, on the CPU only
  Vector pasts = {};   // [B] i32, optional: of each sequence, instead of `past`
  Vector pages =
      {};  // [B, capacity / page_rows] i32, optional; then keys and values have all pages
  int64_t page_rows = 0;
};

// A learned score of each head that takes part in a row's softmax and has no value (attention
// sinks; gpt-oss). It is added to what attention left without it, of B sequences of T rows:
//   lse' = log(e^lse + e^sink), out' = out * e^(lse - lse').
// With lse' and out' the backward pass of attention is that of the softmax with the sink. On the
// CPU only. record "attention_sink_forward": dims (B*T, A, D); bytes: out and lse twice, sinks.
struct AttentionSinkForwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, head_dim = 0;
  Vector sinks;  // [A] c
  Matrix out;    // [B*T, A*D] c, in place
  Vector lse;    // [B*A*T] f32, laid out [B, A, T], in place
};

// d_sinks[a] = beta * d_sinks[a] - sum over rows of e^(sinks[a] - lse) * delta, where delta =
// rowsum(d_out * out) of the head is what the backward pass of attention leaves.
// record "attention_sink_backward": dims (B*T, A); bytes of all operands, d_sinks twice (beta 0:
// once).
struct AttentionSinkBackwardArgs {
  int64_t batch = 0, rows = 0, heads = 0;
  Vector sinks;    // [A] c
  Vector lse;      // [B*A*T] f32, with the sinks
  Vector delta;    // [B*A*T] f32
  float beta = 1;  // 0 or 1
  Vector d_sinks;  // [A] f32
};

}  // namespace tutti::engine
