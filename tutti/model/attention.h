// Causal self-attention with grouped key/value heads: one fused query-key-value projection,
// optional norms of queries and keys, RoPE, tiled attention, output projection. Or, instead of the
// first three, latent_attention.h.
#pragma once

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/model/latent_attention.h"
#include "tutti/model/linear.h"

namespace tutti::model {

// Ring attention, if each rank of the group holds a part of every sequence: keys and values travel
// around the ring, and their gradients follow them.
struct AttentionRing {
  comm::Group* group = nullptr;  // null: sequences are not split
  engine::Matrix key_values[2];  // [N, 2KD] c: current and arriving ones
  engine::Matrix total;  // [N, A*D] f32: sum of the output, or of the gradient of the queries
  engine::Matrix d_own;  // [N, 2KD] f32: of this rank's keys and values, from its own queries
  engine::Matrix
      d_key_values[2];  // [N, 2KD] f32: of other ranks' keys and values, current and arriving
};

// RMSNorm of queries and keys before RoPE (spec::QueryKeyNorm).
struct QueryKeyNorms {
  NormWeights query;  // [D], or of all heads [A*D]
  NormWeights key;
  float epsilon = 0;
  float offset = 0;
  explicit operator bool() const { return bool(query.weight); }
};

// RoPE angle per position of each pair of columns.
struct RopeFrequencies {
  engine::Vector all;     // [R/2] f32
  engine::Vector window;  // of layers with a window, if they have their own
};

struct AttentionLayer {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  Linear qkv;                     // [H] -> [(A+2K)D]
  Linear output;                  // [A*D] -> [H]
  QueryKeyNorms norms;            // optional
  engine::Vector rope_frequency;  // [R/2] f32; empty without RoPE
  int64_t rotated = 0;            // R, rotated columns of a head
  float rope_amplitude = 1;
  float scale = 0;         // of scores; 0: 1 / sqrt(D)
  float softcap = 0;       // 0: none
  bool windowed = false;   // uses BatchShape::window_starts
  engine::Vector sinks;    // [A] c, optional
  engine::Vector d_sinks;  // [A] f32
  AttentionRing ring;
  LatentLayer latent;  // instead of qkv; head_dim is then that of keys, and kv_heads = heads
};

struct AttentionSaved {
  engine::Matrix qkv;        // [N, (A+2K)D] c, rotated
  engine::Vector lse;        // [B*A*T] f32
  engine::Matrix out;        // [N, A*D] c
  engine::Matrix query_key;  // [N, (A+K)D] c: inputs of their norms
  engine::Matrix rstd;       // [N, A+K] f32, or [N, 2]: queries, then keys
  // Largest magnitudes (amax) for products below 16 bits, where they are stored. The forward
  // product computes that of `out`.
  engine::Magnitude x_amax = {};
  engine::Magnitude out_amax = {};
  LatentSaved latent = {};
};

struct AttentionWork {
  engine::Matrix d_out;  // [N, A*D] c
  engine::Matrix d_qkv;  // [N, (A+2K)D] c
  engine::Vector delta;  // [B*A*T] f32
  float norm_beta = 1;   // of the gradients of the query and key norms, and of sinks
  LatentWork latent = {};
};

// Sizes of a micro-batch on this rank, and the layout of its packed documents.
struct BatchShape {
  int64_t sequences = 0;  // B
  int64_t tokens = 0;     // of each sequence on this rank: T / parts
  int64_t parts = 1;      // context parallel ranks, which share each sequence
  // [N] i32: of each row within its document; empty: within its sequence.
  engine::Vector positions = {};
  // [N] i32, like engine::AttentionForwardArgs::starts; for split sequences [parts N], like
  // AttentionBlockForwardArgs::starts for the keys of each rank.
  engine::Vector starts = {};
  // The same within the window of layers that have one.
  engine::Vector window_starts = {};
  int64_t window = 0;           // in tokens; 0: no layer has a window
  engine::Vector numbers = {};  // [N] i32: of each row in the whole micro-batch, if not 0, 1, ...
  int64_t rows() const { return sequences * tokens; }
  int64_t sequence() const { return tokens * parts; }  // T
};

// The starts that a layer uses.
inline engine::Vector starts_of(const AttentionLayer& layer, const BatchShape& shape) {
  return layer.windowed ? shape.window_starts : shape.starts;
}

// Steps of a forward pass to compute; the results of the others are already in `saved`.
struct AttentionSteps {
  bool qkv = true;   // projection, norms and RoPE
  bool core = true;  // out and lse
  bool output = true;
  bool down = true;  // of latent attention: what is compressed
};
// Whether they read x.
bool reads_input(const AttentionLayer& layer, const AttentionSteps& steps);

// branch [N, H] c = attention(x [N, H] c)
void attention_forward(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                       engine::Matrix x, const AttentionSaved& saved, engine::Matrix branch,
                       const AdapterPass& pass, AttentionSteps steps = {});

// Computes dx from d_branch, and the gradients of the weights of the query and key norms; leaves
// the gradients of both projections' outputs in `work`. Gradients that are not needed are empty:
// dx, or everything from work.d_out on.
void attention_backward_input(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                              const AttentionSaved& saved, engine::Matrix d_branch,
                              const AttentionWork& work, engine::Matrix dx, const AdapterPass& pass,
                              const engine::Magnitude& d_branch_amax = {});

void attention_backward_weight(engine::Stream& stream, const AttentionLayer& layer,
                               engine::Matrix x, const AttentionSaved& saved,
                               engine::Matrix d_branch, const AttentionWork& work, float beta,
                               const AdapterPass& pass);

}  // namespace tutti::model
