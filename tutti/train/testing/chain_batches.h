// Something to learn, for tests that train whole models.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train::testing {

// Tokens of a chain over 32 of them: each is followed by one of four, one of which comes in half of
// all cases. A model that has learned it has a loss of 1.24.
class ChainBatches {
 public:
  explicit ChainBatches(const spec::Recipe& recipe)
      : rows_(recipe.batch.micro * recipe.batch.sequence) {}

  BatchSource source() {
    return [this] {
      data_.clear();
      uint64_t last = 1;
      for (int64_t i = 0; i <= rows_; ++i) {
        const uint64_t draw = random_u64(7, static_cast<uint64_t>(count_ * (rows_ + 1) + i)) % 6;
        last = random_u64(11, last * 4 + (draw < 3 ? 0 : draw - 2)) % 32;
        data_.push_back(static_cast<int32_t>(last));
      }
      return BatchView{data_.data(), data_.data() + 1, count_++ * rows_};
    };
  }

 private:
  int64_t rows_;
  int64_t count_ = 0;
  std::vector<int32_t> data_;
};

}  // namespace tutti::train::testing
