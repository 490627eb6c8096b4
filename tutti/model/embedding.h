// Token (and learned position) embedding: the start of the f32 residual stream.
//
// With tensor parallelism (tensor_parallel.h) each rank holds some rows of the token table and
// looks up those tokens of all rows; a reduce-scatter gives each rank the embeddings of its own
// rows, exactly, because all other terms are zero. Each rank adds the positions to its own rows.
#pragma once

#include "tutti/comm/group.h"
#include "tutti/engine/decode_ops.h"
#include "tutti/engine/stream.h"

namespace tutti::model {

struct Embedding {
  engine::Matrix token;         // [padded V, H] c; with `packed` its shape alone
  engine::PackedMatrix packed;  // instead, for inference on the CPU
  engine::Matrix position;      // [context, H] c, learned positions only
  engine::Matrix d_token;       // [padded V, H] f32
  engine::Matrix d_position;    // [context, H] f32
  comm::Group* tp = nullptr;
  int64_t first_token = 0;  // first token of this rank's rows
  int64_t vocabulary = 0;   // rows of this rank; 0: all
  float multiplier = 1;     // of the sum of both tables
};

// Positions of rows: positions[r], or first + r % sequence if there are none.
struct RowPositions {
  int64_t sequence = 0;
  engine::Vector positions = {};  // [N] i32, optional
  int64_t first = 0;
};

// out f32: this rank's own rows, [N / tp, H]. tokens [N]. `workspace` [N, H] c is not needed by a
// single rank.
void embedding_forward(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
                       const RowPositions& rows, engine::Matrix out, engine::Matrix workspace = {});

// Accumulates into (or, with beta 0, overwrites) the gradients of both tables: of this rank's
// tokens, and of the positions of its own rows. rows.first is 0. Several ranks exchange d_out in c.
// d_out is scaled in place.
void embedding_backward_weight(engine::Stream& stream, const Embedding& layer,
                               engine::Vector tokens, const RowPositions& rows,
                               engine::Matrix d_out, float token_beta, float position_beta,
                               engine::Matrix workspace = {});

}  // namespace tutti::model
