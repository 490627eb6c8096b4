// Optimizer state and activations that lie on the host until they are needed: what is computed is
// the same to the bit. On the CPU, with queues of threads that copy beside the one that computes.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/engine/device_calls.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

using namespace testing;

constexpr TrainerOptions kOffloadOptions{.enqueue_steps = true};

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::string> skipped;
  Tensors state;
  uint64_t weights = 0;
};

// What layers and updates take turns in holds nothing from one step to the next.
void poison_slots(const model::Memory& memory) {
  for (const char* name : {"activations", "offloaded_activations", "optimizer_buffers"}) {
    if (memory.map().has(name)) memory.arena(name).poison(0, memory.arena(name).bytes());
  }
}

void expect_same(const Trained& found, const Trained& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.skipped, expected.skipped);
  EXPECT_TRUE(found.state == expected.state);
  EXPECT_EQ(found.weights, expected.weights);
}

Trained train_on_host_copies(const spec::Recipe& recipe, int64_t steps) {
  Trained out;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    Trainer trainer(recipe, ranks, kOffloadOptions);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    for (int64_t step = 0; step < steps; ++step) {
      poison_slots(trainer.memory());
      if (step == 2) trainer.evaluate(batches.step(7), 2);
      const StepResult result = trainer.step(batches.step(step), 1e-2, step + 1);
      if (ranks.world != nullptr && ranks.world->rank() > 0) continue;
      out.losses.push_back(result.loss);
      out.norms.push_back(result.gradient_norm);
      out.skipped.push_back(result.nonfinite_tensor);
    }
    if (const model::ActivationOffload* offload = trainer.activation_offload()) {
      const spec::OffloadTraffic traffic =
          spec::offload_traffic(recipe, trainer.memory().map(), ranks.at.pp);
      EXPECT_EQ(offload->bytes_out(), steps * traffic.activations_out);
      EXPECT_EQ(offload->bytes_in(), steps * traffic.activations_in);
    }
    const std::lock_guard lock(mutex);
    EXPECT_EQ(gather(trainer, trainer.state().tensors(), out.state), 0);
    if (ranks.world == nullptr) out.weights = trainer.state().weights_hash();
  });
  return out;
}

spec::Recipe deep(spec::Recipe recipe, spec::Precision precision) {
  recipe.model.layers = 6;
  recipe.precision = precision;
  return recipe_on(recipe, {});
}

TEST(Offload, GivesTheSameBits) {
  spec::Recipe dropped = gpt_recipe();
  dropped.model.dropout = 0.1;
  dropped.recompute = {spec::RecomputeMode::full, 0,
                       3};  // of two kinds, which have turns of their own
  for (const spec::Recipe& base : {dropped, llama_recipe(), adapted(gpt_recipe())}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      spec::Recipe recipe = deep(base, precision);
      const Trained plain = train_on_host_copies(recipe, 4);
      EXPECT_NE(plain.losses.front(), plain.losses.back());
      for (const spec::Offload offload :
           {spec::Offload{true, 0}, spec::Offload{false, spec::kEveryLayer},
            spec::Offload{true, 4}}) {
        recipe.offload = offload;
        SCOPED_TRACE(recipe.model.name + ": " + offload_text(offload));
        expect_same(train_on_host_copies(recipe, 4), plain);
      }
    }
  }
}

// Blocks with experts have slots, and turns, of their own; selection biases move in the masters.
TEST(Offload, GivesTheSameBitsWithExperts) {
  spec::Recipe recipe = mixtral_recipe();
  recipe.model.layers = 5;
  recipe.model.moe.first_dense_layers = 3;
  recipe.model.moe.router_bias = true;
  recipe.precision = spec::Precision::bf16;
  recipe = recipe_on(recipe, {});
  const Trained plain = train_on_host_copies(recipe, 4);
  recipe.offload = {true, spec::kEveryLayer};
  expect_same(train_on_host_copies(recipe, 4), plain);
}

// Layers that share a slot have their own sizes of exchanges.
TEST(Offload, GivesTheSameBitsWithExpertsOnSeveralRanks) {
  spec::Recipe recipe = mixtral_recipe();
  recipe.model.layers = 5;
  recipe.model.moe.experts = 6;
  recipe = recipe_on(recipe, {.dp = 2, .ep = 2});
  const Trained plain = train_on_host_copies(recipe, 3);
  recipe.offload = {true, spec::kEveryLayer};
  expect_same(train_on_host_copies(recipe, 3), plain);
}

TEST(Offload, GivesTheSameBitsOnEveryRankOfAMesh) {
  spec::Recipe base = llama_recipe();
  base.model.layers = 4;
  base.precision = spec::Precision::bf16;
  for (const spec::Mesh mesh : {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 2, .zero = 1},
                                spec::Mesh{.dp = 2, .zero = 3}, spec::Mesh{.tp = 2}}) {
    spec::Recipe recipe = recipe_on(base, mesh);
    const Trained plain = train_on_host_copies(recipe, 3);
    recipe.offload = {true, spec::kEveryLayer};
    SCOPED_TRACE(text_of(mesh));
    expect_same(train_on_host_copies(recipe, 3), plain);
  }
}

// Without masters the weights are updated where they lie, and round with the words of their numbers
// in whichever piece they are; moments alone travel.
TEST(Offload, GivesTheSameBitsWithoutMasters) {
  spec::Recipe base = llama_recipe();
  base.model.layers = 4;
  base.precision = spec::Precision::bf16;
  base.optimizer.master = spec::Master::none;
  base.optimizer.stochastic_rounding = true;
  for (const spec::Mesh mesh : {spec::Mesh{}, spec::Mesh{.dp = 2, .zero = 1}}) {
    spec::Recipe recipe = recipe_on(base, mesh);
    SCOPED_TRACE(text_of(mesh));
    const Trained plain = train_on_host_copies(recipe, 4);
    EXPECT_NE(plain.losses.front(), plain.losses.back());
    for (const spec::Offload offload : {spec::Offload{true, 0}, spec::Offload{true, 3}}) {
      recipe.offload = offload;
      SCOPED_TRACE(offload_text(offload));
      EXPECT_FALSE(spec::memory_map(recipe).has("master"));
      expect_same(train_on_host_copies(recipe, 4), plain);
    }
  }
}

void expect_same_in_pipeline(const spec::Recipe& base, const spec::Mesh& mesh) {
  spec::Recipe recipe = recipe_on(base, mesh);
  if (mesh.tp == 1) recipe.batch.micro = 1;
  SCOPED_TRACE(text_of(mesh));
  const Trained plain = train_on_host_copies(recipe, 3);
  for (const spec::Offload offload :
       {spec::Offload{true, spec::kEveryLayer}, spec::Offload{false, 1}}) {
    recipe.offload = offload;
    SCOPED_TRACE(offload_text(offload));
    expect_same(train_on_host_copies(recipe, 3), plain);
  }
}

// Layers of several micro-batches and chunks take turns, in the order of the schedule.
TEST(Offload, GivesTheSameBitsWithEverySchedule) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.layers = 8;
  recipe.model.dropout = 0.1;
  recipe.precision = spec::Precision::bf16;
  for (const spec::Mesh mesh : {spec::Mesh{.pp = 2}, spec::Mesh{.pp = 2, .vpp = 2},
                                spec::Mesh{.pp = 3, .pipeline = spec::Pipeline::zero_bubble},
                                spec::Mesh{.pp = 2, .pipeline = spec::Pipeline::gpipe},
                                spec::Mesh{.pipeline = spec::Pipeline::gpipe}}) {
    expect_same_in_pipeline(recipe, mesh);
  }
}

TEST(Offload, GivesTheSameBitsInPipelinesThatRecomputeOrShard) {
  spec::Recipe recipe = llama_recipe();
  recipe.model.layers = 8;
  recipe.recompute = {spec::RecomputeMode::selective, 0, 2};  // of two kinds
  expect_same_in_pipeline(recipe, {.pp = 2, .pipeline = spec::Pipeline::zero_bubble});
  expect_same_in_pipeline(recipe, {.dp = 2, .pp = 2, .zero = 3});
  expect_same_in_pipeline(adapted(recipe), {.tp = 2, .pp = 2});
}

// What the host knows of exchanges it knows by micro-batch, wherever a layer lies.
TEST(Offload, GivesTheSameBitsInPipelinesWithExperts) {
  spec::Recipe recipe = mixtral_recipe();
  recipe.model.layers = 6;
  recipe.model.moe.experts = 6;
  recipe.model.moe.first_dense_layers = 1;
  expect_same_in_pipeline(recipe, {.pp = 2, .pipeline = spec::Pipeline::zero_bubble});
  expect_same_in_pipeline(recipe, {.dp = 2, .pp = 2, .ep = 2});
}

// A step without an update leaves what it had fetched, and steps that run ahead are the same.
TEST(Offload, SkipsAStepAndRunsAhead) {
  std::vector<uint64_t> hashes;
  for (const bool offload : {false, true}) {
    spec::Recipe recipe = deep(gpt_recipe(), spec::Precision::bf16);
    if (offload) recipe.offload = {true, spec::kEveryLayer};
    Trainer trainer(recipe, {}, kOffloadOptions);
    ASSERT_TRUE(trainer.steps_run_ahead());
    trainer.initialize();
    RandomBatches batches(recipe, 5);
    const BatchSource source = batches.source();
    trainer.step(source, 1e-2, 1);
    trainer.begin_step(source, std::nan(""), 2);  // weights that are not numbers, for the next
    {
      const engine::DeviceCalls calls;
      trainer.begin_step(source, 1e-2, {});
      EXPECT_EQ(calls.waits(), std::vector<std::string>());
    }
    EXPECT_TRUE(trainer.finish_step().applied);
    EXPECT_FALSE(trainer.finish_step().applied);
    hashes.push_back(trainer.state().weights_hash());
    trainer.initialize();
    trainer.step(source, 1e-2, 1);
    hashes.push_back(trainer.state().weights_hash());
  }
  EXPECT_EQ(hashes[1], hashes[3]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

TEST(Offload, ArenasOfStagesAreThoseOfTheirMaps) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.layers = 8;
  recipe.offload.activations = spec::kEveryLayer;
  recipe = recipe_on(recipe, {.pp = 2});
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    const Trainer trainer(recipe, ranks, kOffloadOptions);
    const spec::MemoryMap map = spec::memory_map(recipe, spec::tutti_profile(), ranks.at.pp);
    for (const spec::ArenaPlan& arena : map.arenas) {
      EXPECT_EQ(trainer.memory().arena(arena.name).bytes(), arena.bytes) << arena.name;
    }
    EXPECT_GT(map.host_bytes(), 0);
  });
}

TEST(Offload, ArenasAreThoseOfTheMap) {
  spec::Recipe recipe = deep(gpt_recipe(), spec::Precision::bf16);
  const spec::MemoryMap plain = spec::memory_map(recipe);
  recipe.offload = {true, spec::kEveryLayer};
  const spec::MemoryMap map = spec::memory_map(recipe);
  const Trainer trainer(recipe, {}, kOffloadOptions);
  int64_t device = 0;
  int64_t host = 0;
  for (const spec::ArenaPlan& arena : map.arenas) {
    EXPECT_EQ(trainer.memory().arena(arena.name).bytes(), arena.bytes) << arena.name;
    (arena.on_host ? host : device) += arena.bytes;
  }
  EXPECT_EQ(device, map.total_bytes());
  EXPECT_EQ(host, map.host_bytes());
  EXPECT_EQ(plain.host_bytes(), 0);
  // What left is on the host; the buffers of the update are added.
  EXPECT_EQ(map.total_bytes() + map.host_bytes(),
            plain.total_bytes() + map.arena("optimizer_buffers").bytes);
}

TEST(Offload, IsRefusedWhereTheHostComputes) {
  spec::Recipe recipe = gpt_recipe();
  recipe.offload.optimizer = true;
  try {
    const Trainer trainer(recipe);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("offload: optimizer with device: cpu"),
              std::string::npos)
        << error.what();
  }
}

class OffloadSession : public testing::SessionTest {};

// Checkpoints are those of the copies on the host, and a run resumes with or without them.
TEST_F(OffloadSession, ResumesToTheBit) {
  recipe_.model.layers = 4;
  recipe_.precision = spec::Precision::bf16;
  recipe_.train.steps = 12;
  run("plain");
  const std::vector<double> expected = losses();
  trainer_ = kOffloadOptions;
  recipe_.offload = {true, spec::kEveryLayer};
  expect_resume_to_the_bit("offloaded", 7);
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(parameters("offloaded"), parameters("plain"));
  run("both", 7);
  recipe_.offload = {};
  run("both");
  EXPECT_EQ(parameters("both"), parameters("plain"));
}

}  // namespace
}  // namespace tutti::train
