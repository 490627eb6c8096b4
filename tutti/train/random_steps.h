// Training steps on the same random tokens again and again: for measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/parallel/ranks.h"
#include "tutti/spec/recipe.h"
#include "tutti/train/trainer.h"

namespace tutti::train {

class RandomSteps {
 public:
  explicit RandomSteps(const spec::Recipe& recipe, const parallel::Ranks& ranks = {});

  double step();  // its seconds
  Trainer& trainer() { return trainer_; }

 private:
  Trainer trainer_;
  std::vector<int32_t> tokens_, positions_, starts_;
  int64_t updates_ = 0;
};

}  // namespace tutti::train
