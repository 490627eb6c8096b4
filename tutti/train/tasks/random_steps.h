// Training steps on the same random tokens, for measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/parallel/ranks.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {

class RandomSteps {
 public:
  // run_ahead: as a session does, a step begins before the result of the one before is known,
  // where they can.
  explicit RandomSteps(const spec::Recipe& recipe, const parallel::Ranks& ranks = {},
                       bool run_ahead = false);

  double step();  // its seconds; of steps that run ahead, since the result before
  // How long the host was in begin_step() last: where steps are enqueued, what of its time a step
  // takes; elsewhere the step.
  double host_seconds() const { return host_seconds_; }
  Trainer& trainer() { return trainer_; }

 private:
  void begin();

  Trainer trainer_;
  bool run_ahead_;
  double last_result_ = 0;
  double host_seconds_ = 0;
  std::vector<int32_t> tokens_, positions_, starts_;
  int64_t updates_ = 0;
};

}  // namespace tutti::train
