#include "tutti/train/random_steps.h"

#include "tutti/base/clock.h"
#include "tutti/base/rng.h"

namespace tutti::train {

RandomSteps::RandomSteps(const spec::Recipe& recipe, const parallel::Ranks& ranks)
    : trainer_(recipe, ranks) {
  trainer_.initialize();
  const int64_t rows = recipe.batch.micro * recipe.batch.sequence;
  for (int64_t i = 0; i <= rows; ++i) {
    const uint64_t word = random_u64(1, static_cast<uint64_t>(i));
    tokens_.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(recipe.model.vocabulary)));
  }
  for (int64_t i = 0; i < rows; ++i) {  // where documents are packed: one per sequence
    positions_.push_back(static_cast<int32_t>(i % recipe.batch.sequence));
  }
  starts_.assign(static_cast<size_t>(rows), 0);
}

double RandomSteps::step() {
  const double begin = monotonic_seconds();
  trainer_.step(
      [&] {
        return BatchView{tokens_.data(), tokens_.data() + 1, 0, positions_.data(), starts_.data()};
      },
      trainer_.recipe().optimizer.learning_rate, ++updates_);
  return monotonic_seconds() - begin;
}

}  // namespace tutti::train
