// Which samples a step trains on, and on which ranks. A sample number counts the windows of all
// epochs in training order; which window it is, is the sampler's matter (data/). The samples of a
// step do not depend on the mesh or on the micro-batch.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

struct BatchPlan {
  int64_t global = 1;         // sequences per step
  int64_t micro = 1;          // sequences per forward and data-parallel rank
  int64_t data_parallel = 1;  // ranks that take different samples
  int64_t sequence = 1;       // tokens per sequence

  int64_t accumulation() const { return global / (micro * data_parallel); }
  int64_t tokens_per_step() const { return global * sequence; }

  // Samples of data-parallel rank `dp` in micro-batch `m` of `step` (1 for the first): `micro`
  // consecutive numbers from here.
  int64_t first_sample(int64_t step, int64_t m, int64_t dp) const {
    return (step - 1) * global + (m * data_parallel + dp) * micro;
  }
  std::vector<int64_t> samples(int64_t step, int64_t dp) const;  // in the order of training
};

BatchPlan make_batch_plan(const Recipe& recipe);

}  // namespace tutti::spec
