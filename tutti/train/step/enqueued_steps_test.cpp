// Enqueued steps, whose results reach the host a step later, as on a device: on the CPU, where they
// must be the steps that it does itself.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/engine/device_calls.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/testing/session_fixture.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::adapted;
using testing::capacity_recipe;
using testing::distilled;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::mixed_moe_recipe;
using testing::mixtral_recipe;
using testing::RandomBatches;

constexpr TrainerOptions kEnqueued{.enqueue_steps = true};

struct EnqueuedTraining {
  std::vector<double> losses, norms;
  std::vector<std::array<double, 4>> routing;  // of a model with experts
  std::vector<std::array<double, 2>> parts;    // with a teacher
  std::vector<bool> applied;
  uint64_t weights = 0;
  bool operator==(const EnqueuedTraining&) const = default;
};

// `ahead`: each step begins before the result of the one before is taken.
EnqueuedTraining train_enqueued(Trainer& trainer, int64_t steps, bool ahead) {
  trainer.initialize();
  testing::randomize_teacher(trainer);
  RandomBatches batches(trainer.recipe(), 5);
  EnqueuedTraining out;
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
    if (const auto& r = result.routing) {
      out.routing.push_back({r->balance_loss, r->z_loss, r->load_max_over_mean, r->dropped_share});
    }
    if (const auto& p = result.parts) out.parts.push_back({p->cross_entropy, p->divergence});
  }
  out.weights = trainer.state().weights_hash();
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
      const EnqueuedTraining expected = train_enqueued(here, 7, false);
      EXPECT_NE(expected.losses.front(), expected.losses.back());
      EXPECT_EQ(train_enqueued(enqueued, 7, false), expected);
      EXPECT_EQ(train_enqueued(ahead, 7, true), expected);
    }
  }
}

// What `recipe` does on the host, enqueued, and a step ahead is the same.
EnqueuedTraining expect_same_steps(const spec::Recipe& recipe, int64_t steps) {
  SCOPED_TRACE(fmt::format("{} {}", recipe.model.name,
                           recipe.precision == spec::Precision::f32 ? "f32" : "bf16"));
  Trainer here(recipe), enqueued(recipe, {}, kEnqueued), ahead(recipe, {}, kEnqueued);
  EXPECT_FALSE(here.steps_run_ahead());
  EXPECT_TRUE(enqueued.steps_run_ahead());
  EnqueuedTraining expected = train_enqueued(here, steps, false);
  EXPECT_NE(expected.losses.front(), expected.losses.back());
  EXPECT_EQ(train_enqueued(enqueued, steps, false), expected);
  EXPECT_EQ(train_enqueued(ahead, steps, true), expected);
  return expected;
}

// With a selection bias and shared experts; with capacity for fewer copies than there are; with
// everything but adapters frozen.
TEST(EnqueuedSteps, OfExpertsAreThoseOfTheHostToTheBit) {
  for (spec::Recipe recipe :
       {mixtral_recipe(), mixed_moe_recipe(), capacity_recipe(), adapted(mixed_moe_recipe())}) {
    recipe.batch = {6, 2, 7};
    recipe.model.dropout = 0.1;
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      const EnqueuedTraining expected = expect_same_steps(recipe, 6);
      ASSERT_EQ(expected.routing.size(), 6U);
      EXPECT_NE(expected.routing.front(), expected.routing.back());
      EXPECT_EQ(expected.routing.front()[3] > 0, recipe.model.moe.capacity_factor > 0);
    }
  }
}

TEST(EnqueuedSteps, WithATeacherAreThoseOfTheHostToTheBit) {
  for (spec::Recipe recipe : {distilled(gpt_recipe(), llama_recipe().model),
                              distilled(adapted(llama_recipe()), mixed_moe_recipe().model),
                              distilled(mixed_moe_recipe(), gpt_recipe().model)}) {
    recipe.batch = {6, 2, 7};
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      const EnqueuedTraining expected = expect_same_steps(recipe, 5);
      ASSERT_EQ(expected.parts.size(), 5U);
      EXPECT_NE(expected.parts.front(), expected.parts.back());
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

// Its updates are checked by the host, also where selection biases move.
TEST(EnqueuedSteps, AWatchedStateIsUpdatedByTheHost) {
  const spec::Recipe recipe = mixed_moe_recipe();
  Trainer trainer(recipe, {}, kEnqueued);
  trainer.initialize();
  trainer.state().watch();
  trainer.state_changed();
  EXPECT_FALSE(trainer.steps_run_ahead());
  RandomBatches batches(recipe, 3);
  for (int64_t update = 1; update <= 3; ++update) trainer.step(batches.source(), 1e-3, update);
  EXPECT_EQ(trainer.state().damage(), "");
}

std::map<std::string, std::vector<float>> selection_biases(const Trainer& trainer) {
  std::map<std::string, std::vector<float>> out;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    if (!tensor.name.starts_with("param.") || !tensor.name.ends_with("router.bias")) continue;
    const float* bias = static_cast<const float*>(tensor.data);
    out[tensor.name].assign(bias, bias + tensor.shape.front());
  }
  return out;
}

TEST(EnqueuedSteps, SkippedStepsKeepSelectionBiases) {
  const engine::OpTable table = with_a_mistake();
  spec::Recipe recipe = mixed_moe_recipe();
  recipe.precision = spec::Precision::bf16;
  std::vector<EnqueuedTraining> all;
  for (const TrainerOptions& options : {TrainerOptions{}, kEnqueued}) {
    Trainer trainer(recipe, {}, options);
    trainer.stream().set_ops(table);
    squared_norms = 0;
    all.push_back(train_enqueued(trainer, 2, false));
    const auto before = selection_biases(trainer);
    ASSERT_EQ(before.size(), 2U);
    const uint64_t weights = trainer.state().weights_hash();
    RandomBatches batches(recipe, 6);
    EXPECT_FALSE(trainer.step(batches.source(), 1e-3, 3).applied);
    EXPECT_EQ(selection_biases(trainer), before);
    EXPECT_EQ(trainer.state().weights_hash(), weights);
    EXPECT_TRUE(trainer.step(batches.source(), 1e-3, 3).applied);
    EXPECT_NE(selection_biases(trainer), before);
  }
  EXPECT_EQ(all[0], all[1]);
}

// The step after it has begun before anybody knows that it will not count as an update.
TEST(EnqueuedSteps, SkippedStepsAreNotCounted) {
  const engine::OpTable table = with_a_mistake();
  std::vector<EnqueuedTraining> all;
  for (const bool ahead : {false, true}) {
    Trainer trainer(gpt_recipe(), {}, kEnqueued);
    trainer.stream().set_ops(table);
    squared_norms = 0;
    all.push_back(train_enqueued(trainer, 6, ahead));
  }
  EXPECT_EQ(all[0].applied, (std::vector<bool>{true, true, false, true, true, true}));
  EXPECT_EQ(all[0].losses, all[1].losses);
  EXPECT_EQ(all[0].weights, all[1].weights);
  Trainer here(gpt_recipe());
  here.stream().set_ops(table);
  squared_norms = 0;
  EXPECT_EQ(train_enqueued(here, 6, false).weights, all[0].weights);
}

TEST(EnqueuedSteps, NameTheTensorThatIsNotFinite) {
  std::string names[2];
  for (const bool enqueued : {false, true}) {
    const spec::Recipe recipe = gpt_recipe();
    Trainer trainer(recipe, {}, {.enqueue_steps = enqueued});
    trainer.initialize();
    RandomBatches batches(recipe, 3);
    trainer.step(batches.source(), 1e-3, 1);
    const StateTensor tensor = trainer.state().tensors().front();
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
  for (spec::Recipe recipe : {llama_recipe(), mixed_moe_recipe(), capacity_recipe(),
                              distilled(gpt_recipe(), mixed_moe_recipe().model)}) {
    SCOPED_TRACE(recipe.model.name);
    recipe.batch = {6, 2, 7};
    Trainer trainer(recipe, {}, kEnqueued);
    trainer.initialize();
    testing::randomize_teacher(trainer);
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

TEST_F(AheadSession, StopsAfterTheRequestedStep) {
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
