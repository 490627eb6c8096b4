// Low-rank corrections of the projections of a model as values, whatever file they are read from:
// y += scale * x A^T B^T for a range of a projection's outputs (spec/recipe/lora.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/spec/model/config.h"

namespace tutti::spec {

struct LowRankTerm {
  int64_t layer = 0;
  Projection projection = Projection::qkv;
  int64_t first_row = 0;  // of the projection's outputs
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t rank = 0;
  double scale = 1;
  std::vector<float> a;  // [rank, inputs]
  std::vector<float> b;  // [rows, rank]
};

}  // namespace tutti::spec
