// Multi-head latent attention (DeepSeek-V2, section 2.1): what attention reads and leaves, made
// from compressed rows. Shapes: R the rank of keys and values, Rq that of queries, Dr columns of a
// head that rotate, Dn that do not, D = Dr + Dn, E of a value.
//
//   c = x Wdown                 [N, Dr + R]: what rotates of all heads' keys | what is compressed
//   y = rotate(c[:, :Dr]) | norm(c[:, Dr:])
//   u = y[:, Dr:] Wup           [N, A (Dn + E)]: of each head its columns of the key | its value
//   q = norm(x Wq_down) Wq_up   [N, A D], or x Wq; the first Dr columns of each head rotate
//   keys = rotated columns of y | columns of u, values = columns of u
//
// Generation keeps y alone (model/latent_decode.h).
//
// Of tensor parallel ranks each has some heads. x is of all rows, and what is compressed of it is
// on every rank the same; gradients of that are partial like dx.
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/linear.h"

namespace tutti::model {

struct AttentionLayer;
struct AttentionSaved;
struct AttentionWork;
struct AttentionSteps;
struct BatchShape;

struct LatentLayer {
  int64_t rank = 0;       // R
  int64_t rope_dim = 0;   // Dr
  int64_t nope_dim = 0;   // Dn
  int64_t value_dim = 0;  // E
  float epsilon = 0;
  float offset = 0;
  Linear query_down;       // [H] -> [Rq]; without a weight queries are not compressed
  NormWeights query_norm;  // [Rq]
  Linear query;            // [Rq] or [H] -> [A*D]
  Linear kv_down;          // [H] -> [Dr + R]
  NormWeights kv_norm;     // [R]
  Linear kv_up;            // [R] -> [A*(Dn+E)]
  engine::Matrix up;       // [N, A*(Dn+E)] c: u, or its gradient

  bool compresses_queries() const { return query_down.weight || query_down.packed; }
  explicit operator bool() const { return rank > 0; }
};

struct LatentSaved {
  engine::Matrix query_down;  // [N, Rq] c
  engine::Vector query_rstd;  // [N] f32
  engine::Matrix query_y;     // [N, Rq] c
  engine::Matrix kv_down;     // [N, Dr + R] c
  engine::Vector kv_rstd;     // [N] f32
  engine::Matrix kv_y;        // [N, Dr + R] c: y above
};

struct LatentWork {
  engine::Matrix d_kv_down;     // [N, Dr + R] c
  engine::Matrix d_query_down;  // [N, Rq] c
};

// Whether a step reads x.
bool latent_reads_input(const LatentLayer& layer, const AttentionSteps& steps);

// y, and the rows of queries, keys and values [N, A*(2D+E)] of `saved`; x [N, H] c.
void latent_forward(engine::Stream& stream, const AttentionLayer& layer, const BatchShape& shape,
                    engine::Matrix x, const AttentionSaved& saved, const AttentionSteps& steps);

// dx [N, H] c from work.d_qkv, and the gradients of the norms' weights. Leaves the gradients of the
// projections' outputs in `work` and layer.latent.up.
void latent_backward_input(engine::Stream& stream, const AttentionLayer& layer,
                           const BatchShape& shape, const AttentionSaved& saved,
                           const AttentionWork& work, engine::Matrix dx);

void latent_backward_weight(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix x,
                            const AttentionSaved& saved, const AttentionWork& work, float beta);

// Columns of the rows that attention reads.
struct LatentColumns {
  engine::Matrix queries, keys, values;
};
LatentColumns latent_columns(const AttentionLayer& layer, const engine::Matrix& qkv);

// x turned in place: the first columns of each of `heads` heads, `head_dim` wide.
void latent_rotate(engine::Stream& stream, const AttentionLayer& layer, engine::Matrix x,
                   int64_t heads, int64_t head_dim, int64_t sequence, engine::Vector positions,
                   bool inverse = false);

}  // namespace tutti::model
