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

// out [N, H] f32; row r is position first_position + r % sequence.
void embedding_forward(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
                       int64_t sequence, engine::Matrix out, int64_t first_position = 0);

// Adds to (or, with beta 0, overwrites) both tables' gradients.
void embedding_backward_weight(engine::Stream& stream, const Embedding& layer,
                               engine::Vector tokens, int64_t sequence, engine::Matrix d_out,
                               float token_beta, float position_beta);

}  // namespace tutti::model
