// Training in 8 bits on an accelerator that keeps weights as products read them (arena "narrow"):
// against one without memory for that, which quantizes them for each product. Every bit is the
// same. And the magnitudes that kernels leave for quantization. Where the machine has no
// accelerator, each test says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/engine/backend.h"
#include "tutti/engine/recorder.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::gpt_recipe;
using testing::llama_recipe;
using testing::RandomBatches;

constexpr const char* kNarrowDevice = "cuda";
constexpr TrainerOptions kNoRoom = {.device_bytes = 1};

spec::Recipe narrow(spec::Recipe recipe) {
  recipe.device = kNarrowDevice;
  recipe.precision = spec::Precision::fp8;
  recipe.model.layers = 3;
  recipe.batch = {6, 2, 7};
  return recipe;
}

bool keeps_weights(const Trainer& trainer) { return trainer.memory().map().has("narrow"); }

// Losses of steps and of evaluations between them, and in the end logits and state.
struct Course {
  std::vector<double> losses;
  std::vector<float> logits;
  testing::Tensors state;
  bool operator==(const Course&) const = default;
};

Course course(Trainer& trainer, int64_t first, int64_t steps) {
  const spec::Recipe& recipe = trainer.recipe();
  RandomBatches batches(recipe, 3), held_out(recipe, 5);
  batches.seek(first * (recipe.batch.global / recipe.batch.micro));
  Course out;
  for (int64_t step = first; step < first + steps; ++step) {
    out.losses.push_back(trainer.step(batches.source(), 1e-2, step + 1).loss);
    if (step % 2 == 0) continue;
    out.losses.push_back(trainer.evaluate(held_out.source(), 2).loss);
  }
  held_out.seek(0);
  out.logits = trainer.logits(held_out.next());
  testing::gather(trainer, trainer.state().tensors(), out.state);
  return out;
}

class DeviceNarrow : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = engine::find_backend(kNarrowDevice).missing();
    if (!missing.empty()) GTEST_SKIP() << "skipped: " << missing;
  }
};

// Replayed steps (CUDA graphs) and, where words of rounding belong to a step, enqueued ones; with
// micro-batches that add up, recomputation, a narrow head and wide blocks.
TEST_F(DeviceNarrow, KeptWeightsGiveTheBitsOfThoseQuantizedForEachProduct) {
  using spec::RecomputeMode;
  const auto expect_same = [](spec::Recipe recipe, const spec::NarrowConfig& config,
                              RecomputeMode mode) {
    recipe.narrow = config;
    recipe.recompute.mode = mode;
    SCOPED_TRACE(spec::to_yaml(recipe));
    Trainer kept(recipe), each(recipe, {}, kNoRoom);
    ASSERT_TRUE(keeps_weights(kept));
    ASSERT_FALSE(keeps_weights(each));
    testing::randomize(kept, 1, 0.3F);
    testing::randomize(each, 1, 0.3F);
    EXPECT_EQ(course(kept, 0, 6), course(each, 0, 6));
  };
  expect_same(narrow(gpt_recipe()), {}, RecomputeMode::none);
  expect_same(narrow(gpt_recipe()), {1, 0, true, false}, RecomputeMode::full);
  expect_same(narrow(llama_recipe()), {0, 1, true, true}, RecomputeMode::none);
}

// Also after steps that were recorded.
TEST_F(DeviceNarrow, WeightsThatAreSetAreQuantizedAnew) {
  for (const bool adapted : {false, true}) {
    const spec::Recipe recipe =
        adapted ? testing::adapted(narrow(gpt_recipe())) : narrow(gpt_recipe());
    SCOPED_TRACE(adapted ? "adapters" : "all weights");
    Trainer trainer(recipe), fresh(recipe), each(recipe, {}, kNoRoom);
    ASSERT_TRUE(keeps_weights(trainer));
    trainer.initialize();
    course(trainer, 0, 6);
    for (Trainer* one : {&trainer, &fresh, &each}) {
      one->initialize();
      testing::randomize(*one, 2, 0.3F);
    }
    const Course expected = course(each, 0, 6);
    EXPECT_EQ(course(fresh, 0, 6), expected);
    EXPECT_EQ(course(trainer, 0, 6), expected);
  }
}

int64_t quantized_twofold(Trainer& trainer, RandomBatches& batches, int64_t update) {
  engine::Recorder recorder;
  trainer.stream().set_recorder(&recorder);
  trainer.step(batches.source(), 1e-2, update);
  trainer.stream().set_recorder(nullptr);
  int64_t count = 0;
  for (const engine::OpRecord& record : recorder.records()) {
    const bool of_weight = record.dims[0] != trainer.recipe().batch.micro * 7;
    count += record.op == std::string_view("quantize") && record.dims[2] == 2 && of_weight ? 1 : 0;
  }
  return count;
}

TEST_F(DeviceNarrow, AStepQuantizesAWeightOnceAndAFrozenOneNever) {
  spec::Recipe recipe = narrow(llama_recipe());
  Trainer trainer(recipe);
  trainer.initialize();
  RandomBatches batches(recipe, 3);
  EXPECT_EQ(quantized_twofold(trainer, batches, 1), 4 * recipe.model.layers);
  EXPECT_EQ(quantized_twofold(trainer, batches, 2), 4 * recipe.model.layers);
  Trainer adapted(testing::adapted(recipe));
  adapted.initialize();
  EXPECT_EQ(quantized_twofold(adapted, batches, 1), 0);
}

// Of a matrix in the trainer's memory, and the word that is said to hold it.
void expect_magnitude(Trainer& trainer, const engine::Matrix& x, const engine::Vector& word) {
  std::vector<bf16> values(static_cast<size_t>(x.rows * x.cols));
  float found = -1;
  trainer.stream().transfer(values.data(), x.data, x.bytes());
  trainer.stream().transfer(&found, word.data, word.bytes());
  trainer.stream().synchronize();
  float most = 0;
  for (const bf16 value : values) most = std::max(most, std::abs(to_f32(value)));
  EXPECT_EQ(found, most);
}

// Words that kernels leave beside what they make, of a step's last micro-batch and, of gradients,
// the lowest layers. Dropout changes gradients after the kernel that made them.
TEST_F(DeviceNarrow, MagnitudesAreThoseOfTheTensors) {
  for (const double dropout : {0.0, 0.2}) {
    for (const auto mode : {spec::RecomputeMode::none, spec::RecomputeMode::full}) {
      for (spec::Recipe recipe : {narrow(gpt_recipe()), narrow(llama_recipe())}) {
        recipe.model.dropout = dropout;
        recipe.recompute.mode = mode;
        SCOPED_TRACE(spec::to_yaml(recipe));
        Trainer trainer(recipe);
        testing::randomize(trainer, 1, 0.3F);
        RandomBatches batches(recipe, 3);
        trainer.gradients(batches.source());
        const model::Memory& memory = trainer.memory();
        const bool whole = mode == spec::RecomputeMode::none;
        const char* slot = whole ? "block" : "recompute";
        for (int64_t layer = 0; layer < (whole ? recipe.model.layers : 1); ++layer) {
          for (const auto& [tensor, word] :
               {std::pair{"norm1.y", "norm1.amax"}, std::pair{"attention.out", "attention.amax"},
                std::pair{"norm2.y", "norm2.amax"}, std::pair{"mlp.act", "mlp.amax"}}) {
            SCOPED_TRACE(word);
            expect_magnitude(trainer, memory.matrix("activations", slot, layer, tensor),
                             memory.vector("activations", slot, layer, word));
          }
        }
        const bool gelu = recipe.model.activation == spec::Activation::gelu;
        for (const auto& [tensor, word] :
             {std::pair{"d_branch.0", "d_branch.0.amax"},
              std::pair{"d_branch.1", "d_branch.1.amax"},
              std::pair{"d_branch_attention", "d_branch_attention.amax"},
              std::pair{gelu ? "d_act" : "d_pre", "d_pre.amax"}}) {
          SCOPED_TRACE(word);
          expect_magnitude(trainer, memory.matrix("workspace", "step", 0, tensor),
                           memory.vector("workspace", "step", 0, word));
        }
      }
    }
  }
}

// Gathered ones after an update, of stages and chunks of stages; with ZeRO 3 a rank has weights
// only while a layer is at work, and quantizes them for each product.
TEST_F(DeviceNarrow, LayoutsAgree) {
  using spec::Mesh;
  const auto run = [](const Mesh& mesh) {
    spec::Recipe recipe = narrow(llama_recipe());
    recipe.model.layers = 4;
    recipe.narrow = {.wide_first = 1};
    recipe = testing::recipe_on(recipe, mesh);
    recipe.batch = {12, 2, 7};
    return testing::train_on(
        recipe, 4, {}, [&](Trainer& trainer) { EXPECT_EQ(keeps_weights(trainer), mesh.zero < 3); });
  };
  const testing::Training alone = run({});
  for (const Mesh& mesh :
       {Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 2, .zero = 2}, Mesh{.dp = 2, .zero = 3}, Mesh{.pp = 2},
        Mesh{.pp = 2, .vpp = 2}, Mesh{.pp = 2, .pipeline = spec::Pipeline::zero_bubble}}) {
    SCOPED_TRACE(testing::text_of(mesh));
    const testing::Training together = run(mesh);
    EXPECT_EQ(together.disagreements, 0);
    // Apart, gradients of norms' weights are added up in another order.
    if (mesh.dp == 1 && mesh.pipeline != spec::Pipeline::zero_bubble) {
      EXPECT_EQ(together.gradients, alone.gradients);
    } else {
      EXPECT_LT(testing::gradient_error(together.gradients, alone.gradients), 1e-5);
    }
    for (size_t i = 0; i < alone.losses.size(); ++i) {
      EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 1e-3) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace tutti::train
