// Token (and learned position) embedding: the start of the f32 residual stream.
#pragma once

#include "tutti/engine/stream.h"

namespace tutti::model {

struct Embedding {
  engine::Matrix token;       // [padded V, H] c
  engine::Matrix position;    // [context, H] c, learned positions only
  engine::Matrix d_token;     // [padded V, H] f32
  engine::Matrix d_position;  // [context, H] f32
};

// Where rows are: at positions[r], or at first + r % sequence without positions.
struct RowPositions {
  int64_t sequence = 0;
  engine::Vector positions = {};  // [N] i32, optional
  int64_t first = 0;
};

// out [N, H] f32.
void embedding_forward(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
                       const RowPositions& rows, engine::Matrix out);

// Adds to (or, with beta 0, overwrites) both tables' gradients. rows.first is 0.
void embedding_backward_weight(engine::Stream& stream, const Embedding& layer,
                               engine::Vector tokens, const RowPositions& rows,
                               engine::Matrix d_out, float token_beta, float position_beta);

}  // namespace tutti::model
