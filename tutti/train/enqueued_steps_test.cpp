// Steps that are enqueued and of which the host hears a step later, as on a device: on the CPU,
// where they must be the steps that it does itself.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "tutti/engine/device_calls.h"
#include "tutti/train/session_fixture.h"
#include "tutti/train/test_support.h"
#include "tutti/train/trainer.h"

namespace tutti::train {
namespace {

using testing::gpt_recipe;
using testing::llama_recipe;
using testing::RandomBatches;

constexpr TrainerOptions kEnqueued{.enqueue_steps = true};

struct Training {
  std::vector<double> losses, norms;
  std::vector<bool> applied;
  uint64_t weights = 0;
  bool operator==(const Training&) const = default;
};

// `ahead`: each step begins before the result of the one before is taken.
Training train(Trainer& trainer, int64_t steps, bool ahead) {
  trainer.initialize();
  RandomBatches batches(trainer.recipe(), 5);
  Training out;
  int64_t updates = 0;
  const auto begin = [&](int64_t step) {
    std::optional<int64_t> update;
    if (trainer.steps_under_way() == 0) update = updates + 1;
    trainer.begin_step(batches.source(), 1e-3 / static_cast<double>(step), update);
  };
  for (int64_t step = 1; step <= steps; ++step) {
    if (trainer.steps_under_way() == 0) begin(step);
    if (ahead && step < steps) begin(step + 1);
    const StepResult result = trainer.finish_step();
    updates += result.applied ? 1 : 0;
    out.losses.push_back(result.loss);
    out.norms.push_back(result.gradient_norm);
    out.applied.push_back(result.applied);
  }
  out.weights = trainer.weights_hash();
  return out;
}

TEST(EnqueuedSteps, AreTheStepsOfTheHostToTheBit) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.batch = {6, 2, 7};
    recipe.model.dropout = 0.1;
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      Trainer here(recipe), enqueued(recipe, {}, kEnqueued), ahead(recipe, {}, kEnqueued);
      ASSERT_FALSE(here.steps_run_ahead());
      ASSERT_TRUE(enqueued.steps_run_ahead());
      const Training expected = train(here, 7, false);
      EXPECT_NE(expected.losses.front(), expected.losses.back());
      EXPECT_EQ(train(enqueued, 7, false), expected);
      EXPECT_EQ(train(ahead, 7, true), expected);
    }
  }
}

// The third sum of squares of a stream is infinite.
int squared_norms = 0;
engine::OpTable with_a_mistake() {
  engine::OpTable table = engine::cpu_ops();
  table.squared_norm = [](engine::Stream& stream, const engine::SquaredNormArgs& args) {
    engine::cpu_ops().squared_norm(stream, args);
    if (++squared_norms == 3) *args.sum_of_squares = std::numeric_limits<double>::infinity();
  };
  return table;
}

// The step after it has begun before anybody knows that it will not count as an update.
TEST(EnqueuedSteps, OneThatIsSkippedTakesNoNumber) {
  const engine::OpTable table = with_a_mistake();
  std::vector<Training> all;
  for (const bool ahead : {false, true}) {
    Trainer trainer(gpt_recipe(), {}, kEnqueued);
    trainer.stream().set_ops(table);
    squared_norms = 0;
    all.push_back(train(trainer, 6, ahead));
  }
  EXPECT_EQ(all[0].applied, (std::vector<bool>{true, true, false, true, true, true}));
  EXPECT_EQ(all[0].losses, all[1].losses);
  EXPECT_EQ(all[0].weights, all[1].weights);
  Trainer here(gpt_recipe());
  here.stream().set_ops(table);
  squared_norms = 0;
  EXPECT_EQ(train(here, 6, false).weights, all[0].weights);
}

TEST(EnqueuedSteps, NameTheTensorThatIsNotFinite) {
  std::string names[2];
  for (const bool enqueued : {false, true}) {
    const spec::Recipe recipe = gpt_recipe();
    Trainer trainer(recipe, {}, {.enqueue_steps = enqueued});
    trainer.initialize();
    RandomBatches batches(recipe, 3);
    trainer.step(batches.source(), 1e-3, 1);
    const StateTensor tensor = trainer.state().front();
    static_cast<float*>(tensor.data)[0] = std::nanf("");
    trainer.state_changed();
    const StepResult result = trainer.step(batches.source(), 1e-3, 2);
    EXPECT_FALSE(result.applied);
    names[enqueued ? 1 : 0] = result.nonfinite_tensor;
  }
  EXPECT_FALSE(names[0].empty());
  EXPECT_EQ(names[0], names[1]);
}

TEST(EnqueuedSteps, BeginWithoutTheHostWaiting) {
  spec::Recipe recipe = llama_recipe();
  recipe.batch = {6, 2, 7};
  Trainer trainer(recipe, {}, kEnqueued);
  trainer.initialize();
  RandomBatches batches(recipe, 3);
  const BatchSource source = batches.source();
  trainer.step(source, 1e-3, 1);
  trainer.begin_step(source, 1e-3, 2);
  {
    const engine::DeviceCalls calls;
    trainer.begin_step(source, 1e-3, {});
    EXPECT_EQ(calls.waits(), std::vector<std::string>());
  }
  trainer.finish_step();
  trainer.finish_step();
  // The other steps do wait, so that the test can fail.
  const engine::DeviceCalls calls;
  trainer.gradients(source);
  EXPECT_FALSE(calls.waits().empty());
}

class AheadSession : public testing::SessionTest {};

TEST_F(AheadSession, IsTheSessionThatWaits) {
  recipe_.train.steps = 23;
  run("waits");
  const std::vector<double> expected = losses();
  const auto evaluations = events<telemetry::EvaluationDone>().size();
  events_.clear();
  trainer_ = kEnqueued;
  const Summary summary = run("ahead");
  EXPECT_EQ(summary.steps, 23);
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(events<telemetry::EvaluationDone>().size(), evaluations);
  EXPECT_EQ(parameters("ahead"), parameters("waits"));
}

TEST_F(AheadSession, ResumesToTheBit) {
  trainer_ = kEnqueued;
  recipe_.train.steps = 19;
  expect_resume_to_the_bit("ahead", 8);
}

TEST_F(AheadSession, StopsAtTheStepItIsTold) {
  trainer_ = kEnqueued;
  recipe_.train.steps = 30;
  EXPECT_EQ(run("ahead", 7).steps, 7);
  EXPECT_EQ(run("ahead").steps, 30);
}

TEST_F(AheadSession, StopsAtItsTarget) {
  trainer_ = kEnqueued;
  recipe_.train.steps = 30;
  recipe_.train.target_validation_loss = 100;
  const Summary summary = run("ahead");
  EXPECT_TRUE(summary.reached_target);
  EXPECT_EQ(summary.steps, 10);  // the first evaluation
}

}  // namespace
}  // namespace tutti::train
