#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

Recipe gpt2(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"device=cuda", "batch.global=32", "batch.sequence=1024"});
  return recipe_of("gpt2-124m", overrides);
}

const TensorPlan& logits_of(const MemoryMap& map) {
  return map.arena("loss").slot("chunk").tensor("logits");
}

constexpr int64_t kMicroBatchRows = 32 * 1024;

TEST(DeviceProfile, LogitsOfAcceleratorsAreUnchunkedInTheComputeType) {
  const MemoryMap map = memory_map(gpt2({"precision=bf16"}));
  EXPECT_EQ(logits_of(map).dtype, DType::bf16);
  EXPECT_EQ(logits_of(map).shape, (std::vector<int64_t>{kMicroBatchRows, 50304}));
  EXPECT_EQ(logits_of(memory_map(gpt2({"precision=f32"}))).dtype, DType::f32);
  const MemoryMap cpu = memory_map(gpt2({"device=cpu", "precision=bf16"}));
  EXPECT_EQ(logits_of(cpu).dtype, DType::f32);
  EXPECT_EQ(logits_of(cpu).shape, (std::vector<int64_t>{640, 50304}));
}

// As few chunks as fit, of about equal size; the program has the same chunks.
TEST(DeviceProfile, ChunksAreAsLargeAsTheMemoryOfTheDeviceAllows) {
  for (const std::vector<std::string>& keys : {std::vector<std::string>{"precision=bf16"},
                                               {"precision=f32"},
                                               {"precision={compute: fp8, head: true}"},
                                               {"parallel.tp=2", "precision=bf16"}}) {
    const Recipe recipe = gpt2(keys);
    const int64_t whole = memory_map(recipe).total_bytes();
    int64_t before = kMicroBatchRows;
    for (const double share : {1.1, 1.0, 0.96, 0.92, 0.88, 0.84, 0.8}) {
      SCOPED_TRACE(keys.front() + " " + std::to_string(share));
      const auto device = static_cast<int64_t>(share * static_cast<double>(whole) * 16 / 15);
      const int64_t usable = device / 16 * 15;
      Profile profile = tutti_profile_on(recipe, device);
      const MemoryMap map = memory_map(recipe, profile);
      const int64_t rows = logits_of(map).shape[0];
      EXPECT_EQ(profile.loss_chunk_rows, rows);
      EXPECT_LE(rows, before);
      before = rows;
      if (share > 1) {
        EXPECT_EQ(rows, kMicroBatchRows);
      }
      int64_t described = 0;
      const Program program = make_program(recipe, profile);
      for (const Op& op : program.kind("head").forward) {
        if (std::strncmp(op.name, "cross_entropy", 13) == 0) {
          EXPECT_LE(op.dims[0], rows);
          described = std::max(described, op.dims[0]);
        }
      }
      EXPECT_EQ(described, rows);
      if (rows == 1024 || rows == kMicroBatchRows) continue;
      EXPECT_EQ(rows % 64, 0);
      EXPECT_LE(map.total_bytes(), usable);
      const int64_t chunks = (kMicroBatchRows + rows - 1) / rows;
      EXPECT_LE(rows * chunks - kMicroBatchRows, 64 * chunks);
      if (recipe.narrow.head) continue;  // its operands grow only above a certain size
      const int64_t larger = (kMicroBatchRows + chunks - 2) / (chunks - 1);
      profile.loss_chunk_rows = std::min(kMicroBatchRows, (larger + 63) / 64 * 64);
      EXPECT_GT(memory_map(recipe, profile).total_bytes(), usable);
    }
  }
}

TEST(DeviceProfile, ChunksHaveAtLeast1024Rows) {
  const Recipe recipe = gpt2({"precision=bf16"});
  const Profile profile = tutti_profile_on(recipe, int64_t{1} << 30);
  EXPECT_EQ(logits_of(memory_map(recipe, profile)).shape[0], 1024);
  const Recipe small = gpt2({"batch.global=4", "batch.sequence=100"});
  EXPECT_EQ(logits_of(memory_map(small, tutti_profile_on(small, 1000))).shape[0], 400);
}

// The bounds of layouts rely on this.
TEST(DeviceProfile, OnlyTwoThingsDependOnTheMemoryOfTheDevice) {
  const Recipe recipe = gpt2({"precision=fp8"});
  const int64_t whole = memory_map(recipe).total_bytes();
  for (int64_t share = 1; share <= 40; ++share) {
    const Profile chosen = tutti_profile_on(recipe, whole / 32 * share);
    EXPECT_GE(chosen.loss_chunk_rows, kFewestLossRows / 2);
    const Profile given =
        tutti_profile_with(recipe, chosen.quantizes_weights_once, chosen.loss_chunk_rows);
    EXPECT_EQ(memory_map(recipe, given).total_bytes(), memory_map(recipe, chosen).total_bytes());
    const Profile least = tutti_profile_with(recipe, true, kFewestLossRows / 2);
    const MemoryMap map = memory_map(recipe, least);
    EXPECT_LE(map.total_bytes() - map.arena("narrow").bytes,
              memory_map(recipe, chosen).total_bytes());
  }
}

int count_ops(const std::vector<Op>& ops, const char* name, int64_t third = -1) {
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [&](const Op& op) {
    return std::strcmp(op.name, name) == 0 && (third < 0 || op.dims[2] == third);
  }));
}

// Unless weight gradients run separately.
TEST(DeviceProfile, OnePassComputesNormGradientsAndQuantizesOutputGradients) {
  for (const bool apart : {false, true}) {
    const Recipe recipe =
        gpt2({"precision=fp8", "batch.micro=2",
              apart ? "parallel={pp: 2, schedule: zero-bubble}" : "parallel={pp: 2}"});
    const Program program = make_program(recipe, tutti_profile_on(recipe));
    const LayerOps& block = program.kind("block");
    EXPECT_EQ(count_ops(block.backward_weight, "norm_backward_weight"), apart ? 2 : 0);
    EXPECT_EQ(count_ops(program.kind("head").backward_weight, "norm_backward_weight"),
              apart ? 1 : 0);
    EXPECT_EQ(count_ops(block.backward_input, "quantize", 2), apart ? 0 : 4);
    EXPECT_EQ(count_ops(block.backward_input, "quantize", 0), apart ? 4 : 0);
    EXPECT_EQ(count_ops(block.backward_input, "quantize", 1), 0);  // weights: once a step
    EXPECT_EQ(count_ops(block.backward_weight, "quantize"), apart ? 8 : 4);
    const MemoryMap map = memory_map(recipe, tutti_profile_on(recipe), 1);
    const SlotPlan& step = map.arena("workspace").slot("step");
    const auto magnitudes = [](const SlotPlan& slot) {
      return std::count_if(slot.tensors.begin(), slot.tensors.end(), [](const TensorPlan& tensor) {
        return tensor.name.ends_with(".amax") && tensor.bytes == 4;
      });
    };
    EXPECT_EQ(magnitudes(map.arena("activations").slot("block")), 4);
    EXPECT_EQ(magnitudes(step), apart ? 0 : 4);
    EXPECT_EQ(std::count_if(step.tensors.begin(), step.tensors.end(),
                            [](const TensorPlan& tensor) {
                              return tensor.name.starts_with("narrow.turned.");
                            }),
              apart ? 0 : 4);
  }
}

// 2 bytes per weight, straight and transposed: 6 per weight and step instead of 10 per micro-batch.
TEST(DeviceProfile, WeightsAreQuantizedOnceAStepIfTheCodesFit) {
  const std::vector<std::string> keys = {"precision={compute: fp8, wide_last: 1, head: true}",
                                         "batch.micro=2", "parallel={pp: 2, vpp: 2}"};
  const Recipe recipe = gpt2(keys);
  const Program program = make_program(recipe, tutti_profile_on(recipe));
  const LayerOps& block = program.kind("block");
  EXPECT_EQ(count_ops(block.forward, "quantize"), 4);  // inputs
  EXPECT_EQ(count_ops(block.forward, "narrow_gemm"), 4);
  EXPECT_EQ(count_ops(block.backward_input, "quantize"), 4);  // gradients of outputs
  EXPECT_EQ(count_ops(block.backward_weight, "quantize"), 4);
  EXPECT_EQ(count_ops(program.updates[0].quantize, "quantize", 2), 4 * 6);
  EXPECT_EQ(count_ops(program.updates[1].quantize, "quantize", 2), 4 * 5 + 1);
  const int64_t h = recipe.model.hidden, f = recipe.model.ffn;
  const int64_t blocks[] = {6, 5};
  for (int64_t stage = 0; stage < 2; ++stage) {
    const MemoryMap map = memory_map(recipe, tutti_profile_on(recipe), stage);
    const ArenaPlan& arena = map.arena("narrow");
    EXPECT_EQ(arena.slot("block").repeats, blocks[stage]);
    const int64_t block_bytes = arena.slot("block").tensor_bytes();
    EXPECT_EQ(block_bytes, 2 * (3 * h * h + h * h + 2 * h * f) + 8 * 256);
    EXPECT_EQ(arena.slot("block").tensor("mlp.down.turned").bytes, f * h + 256);
    EXPECT_EQ(arena.bytes, blocks[stage] * block_bytes + stage * (2 * 50304 * h + 2 * 256));
    // The operand buffers of a product then need no memory for weights.
    const TensorPlan& right = map.arena("workspace").slot("step").tensor("narrow.right");
    EXPECT_EQ(right.bytes, f * 2 * 1024 + 256);
  }

  // Not if they do not fit besides the fewest logits, nor if weights are gathered per layer.
  Profile kept = tutti_profile_on(recipe);
  kept.loss_chunk_rows = 1024;
  const int64_t least = std::max(memory_map(recipe, kept, 0).total_bytes(),
                                 memory_map(recipe, kept, 1).total_bytes());
  EXPECT_TRUE(tutti_profile_on(recipe, least / 15 * 16 + 32).quantizes_weights_once);
  EXPECT_FALSE(tutti_profile_on(recipe, least / 16 * 16).quantizes_weights_once);
  const auto kept_with = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), "parallel.dp=2");
    return tutti_profile_on(gpt2(std::move(overrides))).quantizes_weights_once;
  };
  EXPECT_TRUE(kept_with({"precision=fp8", "parallel.zero=2"}));
  EXPECT_FALSE(kept_with({"precision=fp8", "parallel.zero=3"}));
  EXPECT_FALSE(kept_with({"precision=mxfp8"}));
  EXPECT_FALSE(kept_with({"precision=fp8", "device=cpu"}));

  // Frozen weights are quantized before the first step.
  Recipe adapted = recipe;
  adapted.lora = {4, 8, 0, {"qkv"}};
  const Program frozen = make_program(adapted, tutti_profile_on(adapted));
  EXPECT_EQ(count_ops(frozen.updates[0].quantize, "quantize"), 0);
  EXPECT_EQ(count_ops(frozen.kind("block").forward, "quantize"), 4);
  EXPECT_TRUE(memory_map(adapted, tutti_profile_on(adapted)).has("narrow"));
}

}  // namespace
}  // namespace tutti::spec
