// Steps of a rank, their results and its final state, for tests of ranks whose steps are enqueued
// ahead of their results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/device_calls.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train::testing {

inline constexpr TrainerOptions kEnqueued{.enqueue_steps = true};

// The result of a step on a rank.
struct Heard {
  double loss = 0, norm = 0;
  int64_t targets = 0;
  bool applied = false;
  std::string tensor;
  std::vector<double> parts = {};  // of a model with experts, or with a teacher
  bool operator==(const Heard&) const = default;
};

struct Ran {
  std::vector<std::vector<Heard>> ranks;
  std::vector<std::vector<double>> evaluations;
  Tensors state;
  bool operator==(const Ran&) const = default;
};

// Of a data parallel rank; some targets are masked, of each rank others.
inline BatchSource masked(BatchSource source, const parallel::Ranks& ranks,
                          std::vector<int32_t>& targets, int64_t count) {
  return [source = std::move(source), &targets, at = ranks.at.dp, count] {
    BatchView view = source();
    targets.assign(view.targets, view.targets + count);
    for (int64_t i = 0; i < count; i += 4 + at) targets[static_cast<size_t>(i)] = -1;
    view.targets = targets.data();
    return view;
  };
}

// Steps of one rank; `ahead`: each begins before the result of the one before is taken. `meanwhile`
// is called before the step of that number begins, when none is under way.
inline void train_rank(const spec::Recipe& recipe, const parallel::Ranks& ranks, Trainer& trainer,
                       int64_t steps, bool ahead, std::mutex& mutex, Ran& out,
                       const std::function<void(Trainer&, int64_t)>& meanwhile = {}) {
  trainer.initialize();
  randomize_teacher(trainer);
  RankBatches batches(recipe, ranks.at.dp);
  std::vector<int32_t> targets;
  const auto source = [&](int64_t step) {
    return masked(batches.step(step), ranks, targets, recipe.batch.micro * recipe.batch.sequence);
  };
  std::vector<Heard> heard;
  int64_t updates = 0;
  const auto begin = [&](int64_t step) {
    std::optional<int64_t> update;
    if (trainer.steps_under_way() == 0) update = updates + 1;
    if (update && meanwhile) meanwhile(trainer, step);
    trainer.begin_step(source(step), 1e-2 / static_cast<double>(step + 1), update);
  };
  for (int64_t step = 0; step < steps; ++step) {
    if (trainer.steps_under_way() == 0) begin(step);
    if (ahead && step + 1 < steps) begin(step + 1);
    const StepResult result = trainer.finish_step();
    updates += result.applied ? 1 : 0;
    heard.push_back({result.loss, result.gradient_norm, result.targets, result.applied,
                     result.nonfinite_tensor});
    if (const auto& r = result.routing) {
      heard.back().parts = {r->balance_loss, r->z_loss, r->load_max_over_mean, r->dropped_share};
    }
    if (const auto& p = result.parts) heard.back().parts = {p->cross_entropy, p->divergence};
  }
  const EvaluationResult evaluated =
      trainer.evaluate(source(steps), recipe.batch.global / recipe.batch.micro / 2);
  const std::lock_guard lock(mutex);
  const auto rank = static_cast<size_t>(ranks.world == nullptr ? 0 : ranks.world->rank());
  out.ranks.resize(std::max(out.ranks.size(), rank + 1));
  out.evaluations.resize(out.ranks.size());
  out.ranks[rank] = heard;
  out.evaluations[rank] = {evaluated.loss, static_cast<double>(evaluated.tokens)};
  EXPECT_EQ(gather(trainer, trainer.state().tensors(), out.state), 0);
}

inline Ran run(const spec::Recipe& recipe, int64_t steps, bool enqueued, bool ahead,
               const std::function<void(Trainer&, int64_t)>& meanwhile = {},
               const comm::WorldOptions& options = {}) {
  Ran out;
  std::mutex mutex;
  const auto body = [&](comm::World& world, engine::Stream&) {
    const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
    Trainer trainer(recipe, ranks, enqueued ? kEnqueued : TrainerOptions{});
    EXPECT_EQ(trainer.steps_run_ahead(), enqueued);
    train_rank(recipe, ranks, trainer, steps, ahead, mutex, out, meanwhile);
  };
  comm::run_threads(recipe.parallel, body, options);
  return out;
}

// Of a new trainer the third step, with one under way, begins without a call that waits.
inline void expect_no_wait(Trainer& trainer, RankBatches& batches) {
  trainer.step(batches.step(0), 1e-3, 1);
  trainer.begin_step(batches.step(1), 1e-3, 2);
  {
    const engine::DeviceCalls calls;
    trainer.begin_step(batches.step(2), 1e-3, {});
    EXPECT_EQ(calls.waits(), std::vector<std::string>());
  }
  trainer.finish_step();
  trainer.finish_step();
}

}  // namespace tutti::train::testing
