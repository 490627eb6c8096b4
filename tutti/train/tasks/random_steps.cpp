#include "tutti/train/tasks/random_steps.h"

#include "tutti/base/clock.h"
#include "tutti/base/rng.h"

namespace tutti::train {

RandomSteps::RandomSteps(const spec::Recipe& recipe, const parallel::Ranks& ranks, bool run_ahead)
    : trainer_(recipe, ranks), run_ahead_(run_ahead) {
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

void RandomSteps::begin() {
  ++updates_;
  const double entered = monotonic_seconds();
  std::optional<int64_t> update;
  if (trainer_.steps_under_way() == 0) update = updates_;
  trainer_.begin_step(
      [&] {
        return BatchView{tokens_.data(), tokens_.data() + 1, 0, positions_.data(), starts_.data()};
      },
      trainer_.recipe().optimizer.learning_rate, update);
  host_seconds_ = monotonic_seconds() - entered;
}

double RandomSteps::step() {
  const bool is_alone = trainer_.steps_under_way() == 0;
  const double since = is_alone ? monotonic_seconds() : last_result_;
  if (is_alone) begin();
  if (run_ahead_ && trainer_.steps_run_ahead()) begin();
  trainer_.finish_step();
  last_result_ = monotonic_seconds();
  return last_result_ - since;
}

}  // namespace tutti::train
