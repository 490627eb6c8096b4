// The trainer on an accelerator against the trainer on the CPU: same recipe, same tokens. Where the
// machine has none, each test says so.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tutti/engine/backend.h"
#include "tutti/engine/device_calls.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/step/state_fetch.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::gpt_recipe;
using testing::llama_recipe;
using testing::mixtral_recipe;
using testing::RandomBatches;

constexpr const char* kDevice = "cuda";

// Of sizes that the fused attention kernels take too.
spec::Recipe wide(spec::Recipe recipe) {
  recipe.model.hidden = 96;
  recipe.model.head_dim = 16;
  recipe.model.heads = 6;
  recipe.model.kv_heads = recipe.model.norm == spec::Norm::rms ? 2 : 6;
  recipe.model.ffn = 160;
  recipe.model.context = 64;
  recipe.batch = {4, 2, 33};
  return recipe;
}

spec::Recipe on_device(spec::Recipe recipe) {
  recipe.device = kDevice;
  return recipe;
}

std::vector<float> values(Trainer& trainer, const StateTensor& tensor) {
  int64_t count = 1;
  for (const int64_t dim : tensor.shape) count *= dim;
  std::vector<float> out(static_cast<size_t>(count));
  trainer.state().fetch(tensor, out.data());
  return out;
}

std::vector<float> all_state(Trainer& trainer) {
  std::vector<float> out;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    const std::vector<float> part = values(trainer, tensor);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b.at(i);
  return norm(difference);
}

std::vector<double> losses(Trainer& trainer, int steps, uint64_t seed = 3, int first = 0) {
  RandomBatches tokens(trainer.recipe(), seed);
  const int64_t micro_batches = trainer.recipe().batch.global / trainer.recipe().batch.micro;
  tokens.seek(first * micro_batches);
  std::vector<double> out;
  for (int step = first; step < first + steps; ++step) {
    const StepResult result = trainer.step(tokens.source(), 1e-3, step + 1);
    EXPECT_TRUE(result.applied) << result.nonfinite_tensor;
    out.push_back(result.loss);
  }
  return out;
}

// Each step begins before the result of the one before is taken.
std::vector<double> losses_ahead(Trainer& trainer, int steps, uint64_t seed = 3) {
  RandomBatches tokens(trainer.recipe(), seed);
  std::vector<double> out;
  trainer.begin_step(tokens.source(), 1e-3, 1);
  for (int step = 1; step <= steps; ++step) {
    if (step < steps) trainer.begin_step(tokens.source(), 1e-3, {});
    out.push_back(trainer.finish_step().loss);
  }
  return out;
}

class DeviceTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = engine::find_backend(kDevice).missing();
    if (!missing.empty()) GTEST_SKIP() << "skipped: " << missing;
  }
};

TEST_F(DeviceTrainer, GradientsEqualThoseOfTheCpu) {
  for (spec::Recipe recipe : {wide(gpt_recipe()), wide(llama_recipe()), wide(mixtral_recipe()),
                              testing::adapted(wide(gpt_recipe()))}) {
    for (const spec::Precision precision : {spec::Precision::f32, spec::Precision::bf16}) {
      SCOPED_TRACE(recipe.model.name + (precision == spec::Precision::f32 ? " f32" : " bf16"));
      // In bf16 a router's near ties fall differently.
      if (precision == spec::Precision::bf16 && recipe.model.moe.experts > 0) continue;
      recipe.precision = precision;
      Trainer cpu(recipe), device(on_device(recipe));
      cpu.initialize();
      device.initialize();
      RandomBatches a(recipe, 3), b(recipe, 3);
      const double tolerance = precision == spec::Precision::f32 ? 1e-5 : 3e-2;
      EXPECT_NEAR(device.gradients(b.source()), cpu.gradients(a.source()), tolerance * 5);
      const auto expected = cpu.state().gradients(), found = device.state().gradients();
      ASSERT_EQ(expected.size(), found.size());
      double whole = 0;
      for (const StateTensor& tensor : expected) whole += std::pow(norm(values(cpu, tensor)), 2);
      whole = std::sqrt(whole);
      const double least = 1e-3 * whole / std::sqrt(static_cast<double>(expected.size()));
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::vector<float> want = values(cpu, expected[i]);
        EXPECT_LE(distance(values(device, found[i]), want), tolerance * std::max(norm(want), least))
            << found[i].name;
      }
    }
  }
}

TEST_F(DeviceTrainer, LossesOfTwentyStepsAreThoseOfTheCpu) {
  spec::Recipe dropped = wide(gpt_recipe());
  dropped.model.dropout = 0.1;
  dropped.batch = {6, 1, 33};
  for (const spec::Recipe& recipe : {wide(gpt_recipe()), wide(llama_recipe()), dropped}) {
    Trainer cpu(recipe), device(on_device(recipe));
    cpu.initialize();
    device.initialize();
    const std::vector<double> expected = losses(cpu, 20), found = losses(device, 20);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-4) << recipe.model.name << " step " << i + 1;
    }
    RandomBatches a(recipe, 9), b(recipe, 9);
    EXPECT_NEAR(device.evaluate(b.source(), 5).loss, cpu.evaluate(a.source(), 5).loss, 1e-4);
  }
}

// Products in 8 bits: what arrives at them differs in the last bits of bf16, and now and then falls
// to another code.
TEST_F(DeviceTrainer, GradientsBelowSixteenBitsAreThoseOfTheCpu) {
  for (const spec::Precision precision :
       {spec::Precision::fp8, spec::Precision::mxfp8, spec::Precision::fp4}) {
    for (const spec::NarrowConfig& narrow :
         {spec::NarrowConfig{}, spec::NarrowConfig{1, 0, true, true}}) {
      spec::Recipe recipe = wide(llama_recipe());
      recipe.precision = precision;
      recipe.narrow = narrow;
      SCOPED_TRACE(spec::to_yaml(recipe));
      Trainer cpu(recipe), device(on_device(recipe));
      cpu.initialize();
      device.initialize();
      RandomBatches a(recipe, 3), b(recipe, 3);
      EXPECT_NEAR(device.gradients(b.source()), cpu.gradients(a.source()), 0.1);
      const auto expected = cpu.state().gradients(), found = device.state().gradients();
      double whole = 0;
      double apart = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::vector<float> want = values(cpu, expected[i]);
        whole += std::pow(norm(want), 2);
        apart += std::pow(distance(values(device, found[i]), want), 2);
      }
      EXPECT_LE(std::sqrt(apart / whole), precision == spec::Precision::fp4 ? 0.2 : 0.08);
    }
  }
}

// An update without masters rounds with the same words as on the CPU.
TEST_F(DeviceTrainer, WithoutMastersTheLossesAreThoseOfTheCpu) {
  spec::Recipe recipe = wide(gpt_recipe());
  recipe.precision = spec::Precision::bf16;
  recipe.optimizer.master = spec::Master::none;
  recipe.optimizer.stochastic_rounding = true;
  Trainer cpu(recipe), device(on_device(recipe));
  cpu.initialize();
  device.initialize();
  const std::vector<double> expected = losses(cpu, 10), found = losses(device, 10);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 3e-2) << i;
}

// What else a step has, besides a dense model's passes.
std::vector<spec::Recipe> with_experts_or_teacher() {
  return {wide(testing::mixed_moe_recipe()), wide(testing::capacity_recipe()),
          testing::distilled(wide(gpt_recipe()), wide(mixtral_recipe()).model)};
}

TEST_F(DeviceTrainer, ReplayedStepsOfExpertsAndWithATeacherHaveTheSameBits) {
  for (const spec::Recipe& base : with_experts_or_teacher()) {
    spec::Recipe recipe = on_device(base);
    recipe.precision = spec::Precision::bf16;
    SCOPED_TRACE(recipe.model.name);
    Trainer replayed(recipe), enqueued(recipe), ahead(recipe);
    for (Trainer* trainer : {&replayed, &enqueued, &ahead}) {
      trainer->initialize();
      testing::randomize_teacher(*trainer);
    }
    enqueued.on_action([](const spec::Action&) {});
    const std::vector<double> expected = losses(enqueued, 8);
    EXPECT_EQ(losses(replayed, 8), expected);
    EXPECT_EQ(losses_ahead(ahead, 8), expected);
    EXPECT_EQ(all_state(replayed), all_state(enqueued));
    EXPECT_EQ(all_state(ahead), all_state(enqueued));
  }
}

// With a listener every operation is enqueued each time; without, the step is replayed, unless what
// it rounds depends on which rows it has.
TEST_F(DeviceTrainer, ReplayedStepsHaveTheBitsOfThoseEnqueued) {
  spec::Recipe recipe = on_device(wide(gpt_recipe()));
  for (const spec::Precision precision : {spec::Precision::bf16, spec::Precision::fp8}) {
    for (const bool masters : {true, false}) {
      recipe.precision = precision;
      recipe.narrow.stochastic_gradients = precision == spec::Precision::fp8 && !masters;
      recipe.optimizer.master = masters ? spec::Master::f32 : spec::Master::none;
      recipe.optimizer.stochastic_rounding = !masters;
      Trainer replayed(recipe), enqueued(recipe);
      replayed.initialize();
      enqueued.initialize();
      enqueued.on_action([](const spec::Action&) {});
      EXPECT_EQ(losses(replayed, 8), losses(enqueued, 8));
      EXPECT_EQ(replayed.state().weights_hash(), enqueued.state().weights_hash());
      if (masters) {
        EXPECT_EQ(all_state(replayed), all_state(enqueued));
      }
    }
  }
}

TEST_F(DeviceTrainer, SameRecipeSameBitsAlsoFromStoredState) {
  spec::Recipe recipe = on_device(wide(llama_recipe()));
  recipe.precision = spec::Precision::bf16;
  Trainer whole(recipe), again(recipe), resumed(recipe);
  for (Trainer* trainer : {&whole, &again, &resumed}) trainer->initialize();
  EXPECT_EQ(losses(whole, 10), losses(again, 10));
  EXPECT_EQ(whole.state().weights_hash(), again.state().weights_hash());

  Trainer first(recipe);
  first.initialize();
  losses(first, 5);
  const auto from = first.state().tensors(), to = resumed.state().tensors();
  for (size_t i = 0; i < from.size(); ++i)
    resumed.state().store(to[i], values(first, from[i]).data());
  resumed.state_changed();
  losses(resumed, 5, 3, 5);
  EXPECT_EQ(all_state(resumed), all_state(whole));
}

// Ranks that share the device, with collectives through memory of the host.
TEST_F(DeviceTrainer, LayoutsOnOneDeviceEqualOneRank) {
  const auto run = [](const spec::Recipe& base, const spec::Mesh& mesh) {
    spec::Recipe recipe = testing::recipe_on(on_device(base), mesh);
    recipe.batch.sequence = 8;
    return testing::train_on(recipe, 5);
  };
  for (const spec::Recipe& recipe : {gpt_recipe(), llama_recipe()}) {
    const testing::Training alone = run(recipe, {});
    for (const spec::Mesh& mesh :
         {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 3, .zero = 1}, spec::Mesh{.dp = 2, .zero = 2},
          spec::Mesh{.dp = 2, .zero = 3}, spec::Mesh{.pp = 2}, spec::Mesh{.cp = 2},
          spec::Mesh{.dp = 2, .pp = 2}, spec::Mesh{.dp = 2, .cp = 2, .zero = 1}}) {
      SCOPED_TRACE(recipe.model.name + " on " + testing::text_of(mesh));
      testing::expect_same(run(recipe, mesh), alone);
    }
  }
  const testing::Training alone = run(llama_recipe(), {});
  for (const spec::Mesh& mesh : {spec::Mesh{.tp = 2}, spec::Mesh{.dp = 2, .tp = 2, .zero = 1},
                                 spec::Mesh{.tp = 2, .pp = 2}}) {
    SCOPED_TRACE("test-llama on " + testing::text_of(mesh));
    testing::expect_same(run(llama_recipe(), mesh), alone);
  }
}

// Experts on ranks that share the device. Two steps: with more, rounding would decide what routers
// choose.
TEST_F(DeviceTrainer, ExpertsOnSeveralRanksEqualOneRank) {
  spec::Recipe dropping = testing::capacity_recipe();
  for (spec::Recipe recipe : {mixtral_recipe(), testing::mixed_moe_recipe(), dropping}) {
    recipe.model.moe.experts = 6;
    const testing::Training alone = testing::train(on_device(recipe), {}, 2);
    for (const spec::Mesh& mesh : {spec::Mesh{.dp = 2, .ep = 2}, spec::Mesh{.dp = 4, .ep = 2},
                                   spec::Mesh{.dp = 3, .ep = 3, .zero = 1}}) {
      SCOPED_TRACE(recipe.model.name + " on " + testing::text_of(mesh));
      testing::expect_same(testing::train(on_device(recipe), mesh, 2), alone);
    }
  }
}

// Replayed steps, and steps that are enqueued one by one; the backend notes every call it makes.
TEST_F(DeviceTrainer, StepsStartWithoutAHostWait) {
  std::vector<spec::Recipe> recipes = with_experts_or_teacher();
  recipes.push_back(wide(gpt_recipe()));
  recipes.push_back(wide(gpt_recipe()));
  recipes.back().model.dropout = 0.1;
  for (const spec::Recipe& base : recipes) {
    spec::Recipe recipe = on_device(base);
    recipe.precision = spec::Precision::bf16;
    SCOPED_TRACE(recipe.model.name);
    Trainer trainer(recipe);
    trainer.initialize();
    testing::randomize_teacher(trainer);
    losses(trainer, 6);
    RandomBatches batches(recipe, 3);
    const BatchSource source = batches.source();
    trainer.begin_step(source, 1e-3, 7);
    const engine::DeviceCalls calls;
    trainer.begin_step(source, 1e-3, {});
    EXPECT_FALSE(calls.names().empty());
    EXPECT_EQ(calls.waits(), std::vector<std::string>());
    trainer.finish_step();
    trainer.finish_step();
  }
}

TEST_F(DeviceTrainer, StepsThatRunAheadHaveTheSameBits) {
  spec::Recipe recipe = on_device(wide(llama_recipe()));
  recipe.precision = spec::Precision::bf16;
  Trainer waiting(recipe), ahead(recipe);
  waiting.initialize();
  ahead.initialize();
  const std::vector<double> expected = losses(waiting, 8);
  EXPECT_EQ(losses_ahead(ahead, 8), expected);
  EXPECT_EQ(all_state(ahead), all_state(waiting));
}

TEST_F(DeviceTrainer, NonFiniteGradientsAreNamedAndNotApplied) {
  const spec::Recipe recipe = on_device(wide(gpt_recipe()));
  Trainer trainer(recipe);
  trainer.initialize();
  losses(trainer, 4);
  const std::vector<StateTensor> state = trainer.state().tensors();
  std::vector<float> broken = values(trainer, state.front());
  const std::vector<float> good = broken;
  broken[0] = std::nanf("");
  trainer.state().store(state.front(), broken.data());
  trainer.state_changed();
  const std::vector<float> moments = values(trainer, state.back());
  RandomBatches tokens(recipe, 3);
  const StepResult result = trainer.step(tokens.source(), 1e-3, 5);
  EXPECT_FALSE(result.applied);
  EXPECT_FALSE(result.nonfinite_tensor.empty());
  EXPECT_EQ(values(trainer, state.back()), moments);
  trainer.state().store(state.front(), good.data());
  trainer.state_changed();
  EXPECT_TRUE(trainer.step(tokens.source(), 1e-3, 5).applied);
}

// In pinned memory, streamed over the link: as if it had stayed, also when steps are replayed.
TEST_F(DeviceTrainer, OffloadedStateAndActivationsGiveTheSameBits) {
  for (const spec::Precision precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe recipe = on_device(wide(llama_recipe()));
    recipe.model.layers = 5;
    recipe.precision = precision;
    Trainer plain(recipe);
    recipe.offload = {true, spec::kEveryLayer};
    Trainer offloaded(recipe);
    plain.initialize();
    offloaded.initialize();
    EXPECT_EQ(losses(offloaded, 8), losses(plain, 8));
    EXPECT_EQ(all_state(offloaded), all_state(plain));
    EXPECT_EQ(offloaded.state().weights_hash(), plain.state().weights_hash());
  }
}

// Of stages that share the device, whose layers take turns with those of other micro-batches.
TEST_F(DeviceTrainer, OffloadedStagesGiveTheSameBits) {
  for (const spec::Mesh& mesh : {spec::Mesh{.pp = 2}, spec::Mesh{.pp = 2, .vpp = 2},
                                 spec::Mesh{.pp = 2, .pipeline = spec::Pipeline::zero_bubble}}) {
    spec::Recipe recipe = testing::recipe_on(on_device(llama_recipe()), mesh);
    recipe.model.layers = 8;
    recipe.batch.sequence = 8;
    const testing::Training plain = testing::train_on(recipe, 4);
    recipe.offload = {true, spec::kEveryLayer};
    const testing::Training offloaded = testing::train_on(recipe, 4);
    SCOPED_TRACE(testing::text_of(mesh));
    EXPECT_EQ(offloaded.losses, plain.losses);
    EXPECT_TRUE(offloaded.state == plain.state);
  }
}

// Through two pinned buffers that take turns, for copies in the memory of hosts.
TEST_F(DeviceTrainer, TheStateIsFetchedWhileItIsRead) {
  spec::Recipe recipe = on_device(wide(llama_recipe()));
  recipe.precision = spec::Precision::bf16;
  Trainer trainer(recipe);
  trainer.initialize();
  losses(trainer, 3);
  StateFetch fetch(trainer, 1000);
  const std::vector<float> expected = all_state(trainer);
  std::vector<float> fetched;
  for (const checkpoint::TensorSource& tensor : fetch.tensors()) {
    tensor.stream([&](const void* data, int64_t bytes) {
      const auto* values = static_cast<const float*>(data);
      fetched.insert(fetched.end(), values, values + bytes / 4);
    });
  }
  EXPECT_EQ(fetched, expected);
  EXPECT_EQ(fetch.fetched_bytes(), static_cast<int64_t>(4 * expected.size()));
}

}  // namespace
}  // namespace tutti::train
