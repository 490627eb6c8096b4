// AdamW over the flat arenas, with the global gradient norm's clipping.
#pragma once

#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::optim {

// Ranges of the flat arenas by weight decay; neighbours with the same decay are merged. Covers
// [0, layout.trainable_elements).
std::vector<engine::AdamwSegment> decay_segments(const spec::ParamLayout& layout,
                                                 float weight_decay);

// The same ranges cut into pieces of tensors, each with its numbers in the whole tensor and the
// tensor's key for rounding in a run of this seed (engine::AdamwArgs::stochastic). What no tensor
// has, padding of zeros, has no key of its own: zero is not rounded.
std::vector<engine::AdamwSegment> numbered_segments(const spec::ParamLayout& layout,
                                                    float weight_decay, uint64_t seed);

// The part of `segments` in [first, first + count), counted from `first`.
std::vector<engine::AdamwSegment> cut_segments(const std::vector<engine::AdamwSegment>& segments,
                                               int64_t first, int64_t count);

struct AdamwState {
  engine::Vector gradient;  // [n] f32
  engine::Vector master;    // [n] f32, or bf16: optimizer.master none
  engine::Vector moment1;   // [n] f32
  engine::Vector moment2;   // [n] f32
  engine::Vector weights;   // [n] bf16, or empty where master is what the model computes with
  std::vector<engine::AdamwSegment> segments;
};

// The update that `scalars` describe, which engine::PrepareUpdateArgs computed in memory of the
// stream; nothing where it does not apply. `sums`: as engine::AdamwArgs has them.
void adamw_update(engine::Stream& stream, const AdamwState& state,
                  const spec::OptimizerConfig& config, const engine::UpdateScalars* scalars,
                  engine::AdamwSums* sums = nullptr);

}  // namespace tutti::optim
