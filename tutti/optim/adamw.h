// AdamW over the flat arenas, with the global gradient norm's clipping.
#pragma once

#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/spec/params.h"
#include "tutti/spec/recipe.h"

namespace tutti::optim {

// Ranges of the flat arenas by weight decay; neighbours with the same decay are merged. Covers
// [0, layout.trainable_elements).
std::vector<engine::AdamwSegment> decay_segments(const spec::ParamLayout& layout,
                                                 float weight_decay);

struct AdamwState {
  engine::Vector gradient;  // [n] f32
  engine::Vector master;    // [n] f32
  engine::Vector moment1;   // [n] f32
  engine::Vector moment2;   // [n] f32
  engine::Vector weights;   // [n] bf16, or empty when master is what the model computes with
  std::vector<engine::AdamwSegment> segments;
};

// The factor that brings a gradient of `norm` down to `clip_norm`; 1 when it is smaller or when
// clip_norm is 0. As torch.nn.utils.clip_grad_norm_: clip_norm / (norm + 1e-6).
double clip_factor(double norm, double clip_norm);

// Update number `step` (1 for the first).
void adamw_update(engine::Stream& stream, const AdamwState& state,
                  const spec::OptimizerConfig& config, double learning_rate, double clip,
                  int64_t step);

}  // namespace tutti::optim
