// Attention operations: part of the table in ops.h, whose rules and shape letters apply here.
#pragma once

#include <cstdint>

#include "tutti/engine/tensor.h"

namespace tutti::engine {

// Causal attention of B sequences of T tokens; heads are column groups of the row: qkv[N, (A+2K)*D]
// = A query heads | K key heads | K value heads. Query head a uses key/value head a / (A/K).
// out[N, A*D]; lse[B*A*T] f32 = log-sum-exp of the scaled scores, laid out [B, A, T].
// No T x T matrix is stored. scale 0 means 1/sqrt(D). With softcap > 0 a scaled score s is replaced
// by softcap * tanh(s / softcap) (Gemma 2), here and in all operations below; CPU only.
//
// Values may have another width than queries and keys, value_dim = E (latent attention; 0: D): qkv
// is then [N, (A+K)*D + K*E] and out [N, A*E], here, in attention_backward and in attention_decode,
// on the CPU only. 4*A*D FLOPs then become 2*A*(D+E), and 10*A*D become 2*A*(3*D+2*E).
//
// Row t of a sequence attends to rows starts[t] .. t, or 0 .. t without `starts`. Starts are
// non-decreasing within a sequence, and 0 <= starts[t] <= t. For packed documents starts[t] is the
// first row of the document of row t; for a sliding window of W tokens it is max(0, t - W + 1), on
// the CPU only. Fully masked tiles are skipped. Work is counted in pairs = sum over all rows of (t
// - starts[t] + 1/2), which is the sum of len^2 / 2 over documents and B*T*T/2 without `starts`.
// record "attention_forward": dims (B, T, A, K, D); flops 4*A*D*pairs (causal half of 4*B*A*T*T*D).
struct AttentionForwardArgs {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;
  float softcap = 0;
  Matrix qkv;          // [N, (A+2K)*D] c
  Matrix out;          // [N, A*D] c
  Vector lse = {};     // [B*A*T] f32; may be empty if there is no backward pass
  Vector starts = {};  // [N] i32, optional
};

// d_qkv from d_out. delta[B*A*T] f32 is scratch for rowsum(d_out * out).
// record "attention_backward": dims (B, T, A, K, D); flops 10*A*D*pairs (five causal products: the
// recomputed scores count as hardware FLOPs, not as model FLOPs, which are 8*A*D*pairs).
struct AttentionBackwardArgs {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;
  float scale = 0;
  float softcap = 0;
  Matrix qkv;          // [N, (A+2K)*D] c
  Matrix out;          // [N, A*D] c
  Matrix d_out;        // [N, A*D] c
  Vector lse;          // [B*A*T] f32
  Vector delta;        // [B*A*T] f32, overwritten
  Matrix d_qkv;        // [N, (A+2K)*D] c
  Vector starts = {};  // [N] i32, optional: as in the forward pass
};

// Causal attention of sequences sharded across ranks (ring attention, Liu et al. 2023): the queries
// of one rank against the keys of one rank. A sequence of blocks * n tokens is cut into 2 * blocks
// chunks; rank i has chunks i and 2 * blocks - 1 - i, one after the other, which balances the work
// of the ranks. Row t therefore attends to rows 0 .. t of its own rank's keys; all rows attend to
// the first chunk of a lower rank; the rows of the second chunk attend to all keys of a higher
// rank. Each case is half of all pairs: pairs = B*n*n/2. With packed documents there are fewer:
// starts[t] is the first row of these keys that belongs to the document of row t or to a later one
// (n: none); it is non-decreasing within a sequence, and at most t for the rank's own keys. pairs
// then counts the pairs that remain.
//
// The running result is kept normalised, in f32: total = softmax-weighted values, lse = log-sum-exp
// of the scaled scores; each further block of keys is merged into it. The first block is the rank's
// own (key_block = query_block) and overwrites total and lse.
// record "attention_block_forward": dims (B, n, A, K, D, first); flops 4*A*D*pairs; bytes: all
// operands, total and lse twice except for the first block.
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

// Gradients of one block's queries, keys and values from d_out, in f32: overwritten, or accumulated
// into with add_queries and add_keys. lse is that over all blocks. The rank's own block writes
// delta = rowsum(d_out * out), the others read it. record "attention_block_backward": dims (B, n,
// A, K, D, first: the rank's own block); flops 10*A*D*pairs; bytes: all operands, accumulated ones
// twice.
struct AttentionBlockBackwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  float softcap = 0;
  int64_t blocks = 1, query_block = 0, key_block = 0;
  Matrix q;       // [B*n, A*D] c
  Matrix keys;    // [B*n, K*D] c
  Matrix values;  // [B*n, K*D] c
  Matrix out;     // [B*n, A*D] c, over all blocks; read with the own block, by fused kernels always
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

// Attention of `queries` new tokens per sequence against the KV cache, for generation. The new keys
// and values must already be in the cache: sequence b has past + queries valid rows; query i
// attends to rows 0 .. past+i. q rows are [B*queries, A*D].
//
// CPU only: sequences may have different pasts, and the rows of a sequence may be in pages of
// page_rows rows anywhere in the cache: row r is row r % page_rows of page pages[b, r / page_rows].
// Neither changes any bit of the result.
//
// record "attention_decode": dims (B, queries, past, A, K, D), where past is the longest;
// flops 4*A*queries*(past+queries)*D of each sequence.
struct AttentionDecodeArgs {
  int64_t batch = 0, queries = 0, past = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;
  int64_t capacity = 0;  // rows of the cache per sequence; with pages, of its row of `pages`
  float scale = 0;
  float softcap = 0;
  Matrix q;            // [B*queries, A*D] c
  Matrix keys;         // [B*capacity, K*D] c
  Matrix values;       // [B*capacity, K*D] c
  Matrix out;          // [B*queries, A*D] c
  Vector starts = {};  // [B*queries] i32, optional: first row of each query's keys, non-decreasing
  Vector lse = {};     // [B*A*queries] f32, optional, CPU only
  Vector pasts = {};   // [B] i32, optional: per sequence, replaces `past`
  Vector pages = {};   // [B, capacity / page_rows] i32, optional: pages of keys and values
  int64_t page_rows = 0;
};

// Attention sinks (gpt-oss): one learned score per head that takes part in each row's softmax and
// has no value. The operation adds it to the result of attention without it, for B sequences of T
// rows:
//   lse' = log(e^lse + e^sink), out' = out * e^(lse - lse').
// Attention's backward pass from lse' and out' is that of the softmax with the sink. CPU only.
// record "attention_sink_forward": dims (B*T, A, D); bytes: out and lse twice, sinks.
struct AttentionSinkForwardArgs {
  int64_t batch = 0, rows = 0, heads = 0, head_dim = 0;
  Vector sinks;  // [A] c
  Matrix out;    // [B*T, A*D] c, in place
  Vector lse;    // [B*A*T] f32, laid out [B, A, T], in place
};

// d_sinks[a] = beta * d_sinks[a] - sum over rows of e^(sinks[a] - lse) * delta, where attention's
// backward pass has written delta = rowsum(d_out * out) of the head.
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

// The operands of latent attention (MLA; DeepSeek-V2, section 2.1.2) from what the projections up
// and down left: of each of A heads keys [Dr + Dn] = the rotated columns that all heads share |
// those of the head, and values [E]. On the CPU only.
// record "latent_heads": dims (N, A, Dr, Dn, E); bytes of all operands.
struct LatentHeadsArgs {
  int64_t heads = 0, shared_dim = 0, head_dim = 0, value_dim = 0;  // A, Dr, Dn, E
  Matrix up;      // [N, A*(Dn+E)] c: of each head its columns of the key | its value
  Matrix shared;  // [N, Dr] c
  Matrix keys;    // [N, A*(Dr+Dn)] c
  Matrix values;  // [N, A*E] c
};

// The gradients of what latent_heads read: d_up, and d_shared = the sum over heads, in f32.
// record "latent_heads_backward": dims (N, A, Dr, Dn, E); bytes of all operands.
struct LatentHeadsBackwardArgs {
  int64_t heads = 0, shared_dim = 0, head_dim = 0, value_dim = 0;
  Matrix d_keys;    // [N, A*(Dr+Dn)] c
  Matrix d_values;  // [N, A*E] c
  Matrix d_up;      // [N, A*(Dn+E)] c
  Matrix d_shared;  // [N, Dr] c
};

}  // namespace tutti::engine
