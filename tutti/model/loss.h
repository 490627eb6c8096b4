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

// What a student learns from beside the targets (spec/distill.h).
struct Distillation {
  LossLayer teacher;
  engine::Matrix y;  // [N, teacher's H] c: the outputs of its final norm
  LossWork work;     // its logits, of as many rows as the student's; rows: the divergences
  float temperature = 1;
  float weight = 0;
};

// Losses of all rows of y [N, H] c against targets [N] i32 (< 0: ignored, loss 0).
void loss_forward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                  engine::Vector targets, const LossWork& work);

// The same, and in the same pass over the chunks the gradient dy [N, H] c of
// gradient_scale * (sum of losses) and the head's weight gradient (beta 0 overwrites it). With a
// teacher it is the gradient of the mixture with the divergences, which go into its rows.
void loss_forward_backward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                           engine::Vector targets, float gradient_scale, const LossWork& work,
                           engine::Matrix dy, float beta,
                           const Distillation* distillation = nullptr);

}  // namespace tutti::model
