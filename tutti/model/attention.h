// Causal self-attention with grouped key/value heads: one fused query-key-value projection, norms
// of queries and keys and rotation where the model has them, tiled attention, output projection.
#pragma once

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/model/linear.h"

namespace tutti::model {

// Where each rank holds a part of every sequence: keys and values travel around the ranks of the
// group, and the gradients of them after them.
struct AttentionRing {
  comm::Group* group = nullptr;    // null: sequences are whole
  engine::Matrix key_values[2];    // [N, 2KD] c: those at work, and those arriving
  engine::Matrix total;            // [N, A*D] f32: of the output, or the gradient of the queries
  engine::Matrix d_own;            // [N, 2KD] f32: of this rank's keys and values, from its queries
  engine::Matrix d_key_values[2];  // [N, 2KD] f32: of other ranks', at work and arriving
};

// RMSNorm of queries and keys before their rotation (spec::QueryKeyNorm).
struct QueryKeyNorms {
  NormWeights query;  // [D], or of all heads [A*D]
  NormWeights key;
  float epsilon = 0;
  float offset = 0;
  explicit operator bool() const { return bool(query.weight); }
};

// By how much pairs of columns turn from one position to the next.
struct RopeFrequencies {
  engine::Vector all;     // [R/2] f32
  engine::Vector window;  // of layers with a window, where they have their own
};

struct AttentionLayer {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  Linear qkv;                     // [H] -> [(A+2K)D]
  Linear output;                  // [A*D] -> [H]
  QueryKeyNorms norms;            // optional
  engine::Vector rope_frequency;  // [R/2] f32; empty without rotation
  int64_t rotated = 0;            // R columns of a head
  float rope_amplitude = 1;
  float scale = 0;         // of scores; 0: 1 / sqrt(D)
  float softcap = 0;       // 0: none
  bool windowed = false;   // sees BatchShape::window_starts
  engine::Vector sinks;    // [A] c, optional
  engine::Vector d_sinks;  // [A] f32
  AttentionRing ring;
};

struct AttentionSaved {
  engine::Matrix qkv;        // [N, (A+2K)D] c, rotated
  engine::Vector lse;        // [B*A*T] f32
  engine::Matrix out;        // [N, A*D] c
  engine::Matrix query_key;  // [N, (A+K)D] c: what their norms read
  engine::Matrix rstd;       // [N, A+K] f32, or [N, 2]: queries, then keys
  // Largest magnitudes for products below 16 bits, where they are kept. That of `out` the product
  // of the forward pass finds.
  engine::Magnitude x_amax = {};
  engine::Magnitude out_amax = {};
};

struct AttentionWork {
  engine::Matrix d_out;  // [N, A*D] c
  engine::Matrix d_qkv;  // [N, (A+2K)D] c
  engine::Vector delta;  // [B*A*T] f32
  float norm_beta = 1;   // of the gradients of the query's and key's norms, and of sinks
};

// The sizes of a micro-batch on this rank, and where documents lie in it when they are packed.
struct BatchShape {
  int64_t sequences = 0;          // B
  int64_t tokens = 0;             // of each on this rank: T / parts
  int64_t parts = 1;              // context parallel ranks, which share each sequence
  engine::Vector positions = {};  // [N] i32: of each row in its document; empty: in its sequence
  engine::Vector starts = {};     // [N] i32: as engine::AttentionForwardArgs::starts; of sequences
                               // on several ranks [parts N]: as AttentionBlockForwardArgs::starts
                               // against the keys of each
  engine::Vector window_starts =
      {};                       // the same as starts, within the window of layers that have it
  int64_t window = 0;           // its tokens; 0: no layer has one
  engine::Vector numbers = {};  // [N] i32: of each row in the whole micro-batch, where they are
                                // not 0, 1, ...
  int64_t rows() const { return sequences * tokens; }
  int64_t sequence() const { return tokens * parts; }  // T
};

// The starts that a layer reads.
inline engine::Vector starts_of(const AttentionLayer& layer, const BatchShape& shape) {
  return layer.windowed ? shape.window_starts : shape.starts;
}

// What of a forward pass to compute; the rest is in `saved` already.
struct AttentionSteps {
  bool qkv = true;   // projection and rotation
  bool core = true;  // out and lse
  bool output = true;
};

// branch [N, H] c = attention(x [N, H] c)
void attention_forward(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                       engine::Matrix x, const AttentionSaved& saved, engine::Matrix branch,
                       const AdapterPass& pass, AttentionSteps steps = {});

// dx from d_branch, and the gradients of the weights of queries' and keys' norms; leaves the
// gradients of both projections' outputs in `work`. Gradients that
// nobody wants are empty: dx, or all from work.d_out on.
void attention_backward_input(engine::Stream& stream, const AttentionLayer& layer, BatchShape shape,
                              const AttentionSaved& saved, engine::Matrix d_branch,
                              const AttentionWork& work, engine::Matrix dx, const AdapterPass& pass,
                              const engine::Magnitude& d_branch_amax = {});

void attention_backward_weight(engine::Stream& stream, const AttentionLayer& layer,
                               engine::Matrix x, const AttentionSaved& saved,
                               engine::Matrix d_branch, const AttentionWork& work, float beta,
                               const AdapterPass& pass);

}  // namespace tutti::model
