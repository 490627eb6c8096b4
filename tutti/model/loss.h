// Head and cross-entropy in chunks of rows: a chunk's logits are computed, overwritten by their
// gradient, and consumed, so the logits of a micro-batch never exist as a whole.
//
// With tensor parallelism (tensor_parallel.h) each rank has some columns of the logits of all rows.
// Ranks exchange two numbers per row and rank, from which each computes the loss (bitwise equal on
// all of them) and the gradient of its columns (engine/vocabulary_ops.h).
#pragma once

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/model/linear.h"

namespace tutti::model {

struct LossLayer {
  int64_t vocabulary = 0;  // of this rank, without padding
  Linear head;             // [padded V, H]; the token embedding when tied
  comm::Group* tp = nullptr;
  int64_t first_column = 0;  // first column of this rank
  int64_t all_columns = 0;   // columns of all ranks, without padding
  float softcap = 0;         // of logits; 0: none
};

// logits [n, padded V] f32 or c of y [n, H] c, after the model's softcap.
void head_logits(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                 engine::Matrix logits);

struct LossWork {
  engine::Matrix logits;  // [C, padded V] f32 or c; gradients in c overlay it
  engine::Vector rows;    // [N] f32: loss of each row
  // With several tensor parallel ranks.
  engine::Vector statistics = {};  // [tp * 2 C] f32
  engine::Matrix gathered = {};    // [N, H] c: y of all rows
};

// Distillation from a teacher, in addition to the targets (spec/recipe/distill.h).
struct Distillation {
  LossLayer teacher;
  engine::Matrix y;  // [N, teacher's H] c: output of its final norm
  LossWork work;     // its logits, as many rows as the student's; rows: the divergences
  float temperature = 1;
  float weight = 0;
};

// Losses of all N rows against targets [N] i32 (< 0: ignored, loss 0). y [N / tp, H] c.
void loss_forward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                  engine::Vector targets, const LossWork& work);

// The same, and in the same pass over the chunks the gradient of gradient_scale * (sum of losses)
// and the head's weight gradient (beta 0 overwrites it). dy [N, H] c: its own rows are the gradient
// of y. With a teacher, it is the gradient of the mixture with the divergences, which are written
// to the rows of the teacher's LossWork.
void loss_forward_backward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                           engine::Vector targets, float gradient_scale, const LossWork& work,
                           engine::Matrix dy, float beta,
                           const Distillation* distillation = nullptr);

}  // namespace tutti::model
