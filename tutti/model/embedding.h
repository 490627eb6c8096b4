// Token (and learned position) embedding: the start of the f32 residual stream.
//
// Of tensor parallel ranks (tensor_parallel.h) each has some rows of the token table and looks up
// those tokens of all rows; adding up and scattering them gives each the tokens of its own rows,
// exactly, since every other term is zero. Positions are added to these, by each to its own rows.
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
  int64_t first_token = 0;  // of this rank's rows, of
  int64_t vocabulary = 0;   // so many; 0: all are here
  float multiplier = 1;     // of the sum
};

// Where rows are: at positions[r], or at first + r % sequence without positions.
struct RowPositions {
  int64_t sequence = 0;
  engine::Vector positions = {};  // [N] i32, optional
  int64_t first = 0;
};

// out f32: of this rank's own rows, [N / tp, H]. tokens [N]. `room` [N, H] c is work space, which
// one rank does not need.
void embedding_forward(engine::Stream& stream, const Embedding& layer, engine::Vector tokens,
                       const RowPositions& rows, engine::Matrix out, engine::Matrix room = {});

// Adds to (or, with beta 0, overwrites) both tables' gradients: of this rank's tokens, and what its
// own rows give to the positions. rows.first is 0. Several ranks exchange d_out in c. d_out is
// multiplied in place.
void embedding_backward_weight(engine::Stream& stream, const Embedding& layer,
                               engine::Vector tokens, const RowPositions& rows,
                               engine::Matrix d_out, float token_beta, float position_beta,
                               engine::Matrix room = {});

}  // namespace tutti::model
