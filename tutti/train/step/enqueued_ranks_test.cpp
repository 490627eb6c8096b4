// Enqueued steps of several ranks, whose results reach the hosts a step later, as on devices: on
// the CPU, where they must be the steps that the hosts do themselves. Ranks are threads.
#include "tutti/train/testing/enqueued_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/device_calls.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

TEST(EnqueuedRanks, EnqueuedStepsEqualHostStepsBitwise) {
  spec::Recipe pieces = divided_llama();
  pieces.model.layers = 4;
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 2, .zero = 2},
                           Mesh{.dp = 2, .zero = 3}, Mesh{.tp = 2}, Mesh{.cp = 2}, Mesh{.pp = 2},
                           Mesh{.pp = 2, .vpp = 2}, Mesh{.dp = 2, .tp = 2, .zero = 1},
                           Mesh{.dp = 2, .cp = 2, .zero = 3}, Mesh{.dp = 2, .pp = 2, .zero = 2}}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      spec::Recipe recipe = mesh.vpp > 1 ? pieces : divided_gpt(mesh.dp > 1 ? 0.1 : 0);
      recipe.precision = precision;
      recipe = divided(recipe, mesh);
      if (mesh.cp > 1) recipe.batch.sequence = 8;
      SCOPED_TRACE(
          fmt::format("{} {}", text_of(mesh), precision == spec::Precision::f32 ? "f32" : "bf16"));
      const Ran expected = run(recipe, 3, false, false);
      const int64_t rows = recipe.batch.global * recipe.batch.sequence;
      for (const std::vector<Heard>& heard : expected.ranks) {
        EXPECT_EQ(heard, expected.ranks.front());
        EXPECT_LT(heard.front().targets, rows);
        EXPECT_NE(heard.front().loss, heard.back().loss);
      }
      EXPECT_EQ(run(recipe, 3, true, true), expected);
    }
  }
}

// With shared experts and selection biases, which move by what all ranks have counted.
TEST(EnqueuedRanks, OfExpertsAndWithATeacherAreThoseOfTheHosts) {
  for (spec::Recipe recipe :
       {mixed_moe_recipe(), capacity_recipe(), distilled(gpt_recipe(), llama_recipe().model)}) {
    for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 2, .zero = 3}}) {
      recipe.precision = mesh.zero == 1 ? spec::Precision::bf16 : spec::Precision::f32;
      SCOPED_TRACE(recipe.model.name + " " + text_of(mesh));
      const spec::Recipe on_mesh = recipe_on(recipe, mesh);
      const Ran expected = run(on_mesh, 3, false, false);
      EXPECT_FALSE(expected.ranks.front().front().parts.empty());
      EXPECT_EQ(run(on_mesh, 3, true, true), expected);
    }
  }
}

// Experts of pipeline stages, and on several ranks, whose copies a capacity lets travel in pieces.
TEST(EnqueuedRanks, OfExpertsOnAnyMeshAreThoseOfTheHosts) {
  spec::Recipe recipe = capacity_recipe();
  recipe.model.layers = 4;  // the first one is dense
  recipe.model.heads = recipe.model.kv_heads = 4;
  recipe.model.head_dim = 6;
  recipe.model.moe.experts = 6;
  for (const Mesh& mesh :
       {Mesh{.pp = 2}, Mesh{.pp = 2, .vpp = 2}, Mesh{.pp = 4}, Mesh{.dp = 2, .ep = 2},
        Mesh{.dp = 3, .ep = 3, .zero = 1}, Mesh{.dp = 4, .ep = 2, .zero = 3},
        Mesh{.dp = 2, .pp = 2, .ep = 2}, Mesh{.dp = 2, .tp = 2, .ep = 2}}) {
    recipe.precision = mesh.zero == 1 ? spec::Precision::bf16 : spec::Precision::f32;
    SCOPED_TRACE(text_of(mesh));
    const spec::Recipe on_mesh = recipe_on(recipe, mesh);
    const Ran expected = run(on_mesh, 3, false, false);
    for (const std::vector<Heard>& heard : expected.ranks) {
      EXPECT_EQ(heard, expected.ranks.front());
      EXPECT_GT(heard.front().parts.at(0), 0);
    }
    EXPECT_EQ(run(on_mesh, 3, true, true), expected);
  }
}

TEST(EnqueuedRanks, ThroughGlooAsThroughMemory) {
  const spec::Recipe recipe = divided(divided_gpt(), {.dp = 3, .zero = 1});
  comm::WorldOptions gloo;
  gloo.transport = comm::Transport::gloo;
  const Ran expected = run(recipe, 3, false, false);
  EXPECT_EQ(run(recipe, 3, true, true, {}, gloo), expected);
}

TEST(EnqueuedRanks, WithAdaptersAndWithoutMasters) {
  spec::Recipe rounded = divided_gpt();
  rounded.precision = spec::Precision::bf16;
  rounded.optimizer.master = spec::Master::none;
  rounded.optimizer.stochastic_rounding = true;
  for (const spec::Recipe& base : {with_adapters(divided_gpt(), 0.1), rounded}) {
    const spec::Recipe recipe = divided(base, {.dp = 2, .zero = 1});
    EXPECT_EQ(run(recipe, 3, true, true), run(recipe, 3, false, false)) << recipe.model.name;
  }
}

// Of this thread's rank: after so many losses of micro-batches comes one that is infinite.
thread_local int losses_left = -1;
engine::OpTable with_a_rank_mistake() {
  engine::OpTable table = engine::cpu_ops();
  table.sum = [](engine::Stream& stream, const engine::SumArgs& args) {
    engine::cpu_ops().sum(stream, args);
    if (losses_left-- == 0) *args.total = std::numeric_limits<double>::infinity();
  };
  return table;
}

// What one rank finds lets all skip the step; the one that has begun after it takes its number.
TEST(EnqueuedRanks, AllRanksSkipTheSameStep) {
  const engine::OpTable table = with_a_rank_mistake();
  const spec::Recipe recipe = divided(divided_gpt(), {.dp = 2, .zero = 1});
  std::atomic<int> prepared{0};
  const auto prepare = [&](Trainer& trainer, int64_t step) {
    if (step > 0) return;
    trainer.stream().set_ops(table);
    const int64_t a_step = recipe.batch.global / recipe.batch.micro / recipe.parallel.dp;
    losses_left = prepared++ % 2 == 0 ? static_cast<int>(a_step) : -1;
  };
  Ran all[3];
  for (const int way : {0, 1, 2}) all[way] = run(recipe, 5, way > 0, way > 1, prepare);
  std::vector<bool> applied;
  for (const Heard& heard : all[0].ranks.front()) applied.push_back(heard.applied);
  EXPECT_EQ(applied, (std::vector<bool>{true, false, true, true, true}));
  for (const Ran& ran : {all[1], all[2]}) {
    for (size_t rank = 0; rank < 2; ++rank) {
      for (size_t step = 0; step < applied.size(); ++step) {
        EXPECT_EQ(ran.ranks[rank][step].applied, applied[step]);
        EXPECT_EQ(ran.ranks[rank][step].tensor, all[0].ranks[rank][step].tensor);
        EXPECT_EQ(ran.ranks[rank][step].loss, all[0].ranks[rank][step].loss);
      }
    }
    EXPECT_EQ(ran.state, all[0].state);
  }
}

// A parameter that one rank owns is not a number: all name the same first tensor that it spoils.
TEST(EnqueuedRanks, NameTheTensorThatIsNotFinite) {
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 2, .zero = 1}, Mesh{.dp = 2, .zero = 3},
                           Mesh{.tp = 2}, Mesh{.pp = 2}}) {
    const spec::Recipe recipe = divided(divided_llama(), mesh);
    SCOPED_TRACE(text_of(mesh));
    const auto spoil = [&](Trainer& trainer, int64_t step) {
      if (step != 1) return;
      for (const StateTensor& tensor : trainer.state().tensors()) {
        if (tensor.name != "param.blocks.1.mlp.down.weight") continue;
        static_cast<float*>(tensor.data)[0] = std::nanf("");
      }
      trainer.state_changed();
    };
    const Ran expected = run(recipe, 2, false, false, spoil);
    const Ran found = run(recipe, 2, true, false, spoil);
    for (size_t rank = 0; rank < expected.ranks.size(); ++rank) {
      EXPECT_FALSE(found.ranks[rank][1].applied);
      EXPECT_FALSE(found.ranks[rank][1].tensor.empty());
      EXPECT_EQ(found.ranks[rank][1].tensor, expected.ranks[rank][1].tensor);
      EXPECT_EQ(found.ranks[rank][1].tensor, found.ranks[0][1].tensor);
    }
  }
}

TEST(EnqueuedRanks, AStepWithoutAnyTargetIsAnErrorOnAll) {
  const spec::Recipe recipe = divided(divided_gpt(), {.dp = 2});
  std::vector<std::string> errors(2);
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    Trainer trainer(recipe, ranks, kEnqueued);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    const std::vector<int32_t> none(static_cast<size_t>(recipe.batch.micro * recipe.batch.sequence),
                                    -1);
    const BatchSource source = batches.step(0);
    try {
      trainer.step(
          [&] {
            BatchView view = source();
            view.targets = none.data();
            return view;
          },
          1e-3, 1);
    } catch (const Error& error) {
      errors[static_cast<size_t>(ranks.world->rank())] = error.what();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("is masked or padding"), std::string::npos) << error;
  }
}

// Ranks that share a device, whose groups copy through memory of the host: their hosts wait in each
// call, and the sums are nonetheless those of the stream.
TEST(DeviceRanks, TakeTheStepsOfTheHosts) {
  const std::string missing = engine::find_backend("cuda").missing();
  if (!missing.empty()) GTEST_SKIP() << "skipped: " << missing;
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 2, .zero = 1}, Mesh{.dp = 2, .zero = 3},
                           Mesh{.tp = 2}, Mesh{.cp = 2}, Mesh{.pp = 2}}) {
    spec::Recipe recipe = divided(divided_llama(), mesh);
    recipe.device = "cuda";
    recipe.batch.sequence = 8;
    SCOPED_TRACE(text_of(mesh));
    EXPECT_EQ(run(recipe, 3, true, true), run(recipe, 3, false, false));
  }
  for (const Mesh& mesh : {Mesh{.pp = 2}, Mesh{.dp = 2, .ep = 2}}) {
    spec::Recipe recipe = capacity_recipe();
    recipe.device = "cuda";
    recipe.model.moe.experts = 6;
    recipe = recipe_on(recipe, mesh);
    SCOPED_TRACE("experts " + text_of(mesh));
    EXPECT_EQ(run(recipe, 3, true, true), run(recipe, 3, false, false));
  }
}

// As a device's transport does it, a group works beside the stream of its caller, which it does not
// wait for; on the CPU that has nothing left to do when it calls.
class Beside : public comm::Group {
 public:
  explicit Beside(comm::Group& inner) : Group(inner.info()), inner_(inner) {}
  std::vector<comm::RankActivity> activity() const override { return inner_.activity(); }
  void fail_with(const std::string& message) override { inner_.fail_with(message); }

 protected:
  comm::Ticket enqueue(engine::Stream&, const comm::Call& call) override {
    const auto vector = [&](const void* data, int64_t times) {
      return engine::vector(const_cast<void*>(data), call.shape.dtype, times * call.shape.count);
    };
    switch (call.shape.kind) {
      case comm::CallKind::all_reduce:
        return inner_.all_reduce(own_, vector(call.send, 1), vector(call.receive, 1));
      case comm::CallKind::reduce_scatter:
        return inner_.reduce_scatter(own_, vector(call.send, size()), vector(call.receive, 1));
      case comm::CallKind::all_gather:
        return inner_.all_gather(own_, vector(call.send, 1), vector(call.receive, size()));
      default: TUTTI_CHECK(false, "{} is not meant here", comm::call_name(call.shape.kind));
    }
  }
  bool done(int32_t, uint64_t) const override { return true; }
  void wait(engine::Stream&, int32_t, uint64_t) override {}

 private:
  struct Quiet : engine::Stream {
    Quiet() : Stream(engine::cpu_ops()) {}
    void synchronize() override {}
  };
  comm::Group& inner_;
  Quiet own_;
};

TEST(EnqueuedRanks, BeginWithoutTheHostsWaiting) {
  std::vector<spec::Recipe> recipes = {
      recipe_on(mixed_moe_recipe(), {.dp = 2, .zero = 1}),
      recipe_on(distilled(gpt_recipe(), llama_recipe().model), {.dp = 2})};
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 2, .zero = 1}, Mesh{.dp = 2, .zero = 3},
                           Mesh{.dp = 2, .tp = 2, .zero = 2}}) {
    recipes.push_back(divided(divided_llama(), mesh));
  }
  for (const spec::Recipe& recipe : recipes) {
    SCOPED_TRACE(recipe.model.name + " " + text_of(recipe.parallel));
    on_ranks(recipe, [&](const parallel::Ranks& of_world) {
      parallel::Ranks ranks = of_world;
      std::vector<std::unique_ptr<Beside>> groups;
      for (comm::Group** group : {&ranks.sums, &ranks.replicas, &ranks.layers.tp}) {
        if (*group == nullptr) continue;
        groups.push_back(std::make_unique<Beside>(**group));
        *group = groups.back().get();
      }
      Trainer trainer(recipe, ranks, kEnqueued);
      trainer.initialize();
      randomize_teacher(trainer);
      RankBatches batches(recipe, ranks.at.dp);
      expect_no_wait(trainer, batches);
      const engine::DeviceCalls calls;
      trainer.gradients(batches.step(3));
      EXPECT_FALSE(calls.waits().empty());  // so that the test can fail
    });
  }
}

}  // namespace
}  // namespace tutti::train
