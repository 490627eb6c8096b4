// A forward-only model: forward passes of fixed parameters over micro-batches, in the memory of
// spec::inference_memory_map. Losses equal those that training computes in evaluation, to the bit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/model/stage.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {

class Evaluator {
 public:
  // Micro-batches of recipe.batch, on this rank alone whatever recipe.parallel says; `master`: flat
  // f32 parameters in the layout of recipe.model and recipe.lora, not needed afterwards.
  Evaluator(const spec::Recipe& recipe, const float* master);

  // Mean loss of one micro-batch over its targets that are not ignored.
  EvaluationResult evaluate(const BatchView& batch);

  // The loss of every row [sequences * tokens] of one micro-batch, 0 where its target is ignored;
  // valid until the next call. sequences * tokens must be batch.micro * batch.sequence.
  const float* row_losses(model::BatchShape shape, const BatchView& batch);

  int64_t rows() const { return recipe_.batch.micro * recipe_.batch.sequence; }
  const spec::Recipe& recipe() const { return recipe_; }

 private:
  model::Stage& stage(model::BatchShape shape);

  spec::Recipe recipe_;
  spec::ParamLayout layout_;
  std::unique_ptr<model::Memory> memory_;
  std::unique_ptr<engine::Stream> stream_;
  std::map<int64_t, std::unique_ptr<model::Stage>> stages_;  // by tokens of a sequence
};

}  // namespace tutti::train
