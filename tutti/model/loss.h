// Head and cross-entropy in chunks of rows: a chunk's logits are computed, turned into their
// gradient in place, and used up, so the logits of a micro-batch never exist as a whole.
#pragma once

#include "tutti/engine/stream.h"
#include "tutti/model/linear.h"

namespace tutti::model {

struct LossLayer {
  int64_t vocabulary = 0;  // without padding
  Linear head;             // [padded V, H]; the token embedding when tied
};

struct LossWork {
  engine::Matrix logits;  // [C, padded V] f32; gradients in c overlay it
  engine::Vector rows;    // [N] f32: loss of each row
};

// Losses of all rows of y [N, H] c against targets [N] i32 (< 0: ignored, loss 0).
void loss_forward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                  engine::Vector targets, const LossWork& work);

// The same, and in the same pass over the chunks the gradient dy [N, H] c of
// gradient_scale * (sum of losses) and the head's weight gradient (beta 0 overwrites it).
void loss_forward_backward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                           engine::Vector targets, float gradient_scale, const LossWork& work,
                           engine::Matrix dy, float beta);

}  // namespace tutti::model
