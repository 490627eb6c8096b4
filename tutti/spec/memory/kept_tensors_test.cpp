#include "tutti/spec/memory/kept_tensors.h"

#include <gtest/gtest.h>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

constexpr double kGb = 1e9;

// Llama 2 70B with adapters on the attention, as MLPerf tunes it: one sequence of 8,192 tokens.
Recipe tuned(const std::string& precision, const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"lora={rank: 16, dropout: 0.1, targets: [qkv, output]}",
                                        "model.context=8192",
                                        "batch={global: 8, micro: 1, sequence: 8192}",
                                        "parallel={dp: 8, zero: 1}", "precision=" + precision};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return recipe_of("llama2-70b", overrides);
}

double gb(const MemoryMap& map, const char* arena) {
  return map.has(arena) ? static_cast<double>(map.arena(arena).bytes) / kGb : 0;
}

bool keeps(const MemoryMap& map, std::string_view tensor) {
  for (const SlotPlan& slot : map.arena("activations").slots) {
    if (slot.name != "block") continue;
    for (const TensorPlan& kept : slot.tensors) {
      if (kept.name == tensor) return true;
    }
  }
  return false;
}

TEST(KeptTensors, FrozenProductsKeepNoInput) {
  const MemoryMap map = memory_map(tuned("bf16"), find_profile("nemo-lora"));
  EXPECT_TRUE(keeps(map, "norm1.y"));  // the adapter reads it
  EXPECT_FALSE(keeps(map, "norm2.y"));
  EXPECT_FALSE(keeps(map, "mlp.act"));
  EXPECT_TRUE(keeps(map, "mlp.up"));  // the activation's backward pass reads it
  EXPECT_TRUE(keeps(map, "attention.out"));
  EXPECT_TRUE(keeps(map, "attention.output.dropped"));
  const MemoryMap all =
      memory_map(tuned("bf16", {"lora.targets=[qkv, output, mlp]"}), find_profile("nemo-lora"));
  EXPECT_TRUE(keeps(all, "norm2.y"));
  EXPECT_TRUE(keeps(all, "mlp.act"));
  // With full training every product keeps its input.
  const Recipe trained =
      recipe_of("llama2-70b", {"batch={global: 1, micro: 1, sequence: 1024}", "precision=bf16"});
  const MemoryMap whole = memory_map(trained, find_profile("nemo-lora"));
  EXPECT_TRUE(keeps(whole, "norm2.y"));
  EXPECT_TRUE(keeps(whole, "mlp.act"));
  EXPECT_FALSE(keeps(whole, "attention.output.dropped"));
}

// Per token and layer (H 8,192, F 28,672, 10,240 columns of queries, keys and values): inputs of
// both norms and the adapters' two 4 x 2 H, the attention's output 2 H, its operands 20,480, the
// activation's input 2 F, statistics, and 16 columns of two adapters.
TEST(KeptTensors, TunedLayerHasTheBytesOfItsTensors) {
  const MemoryMap map = memory_map(tuned("fp8"), find_profile("nemo-lora"));
  const SlotPlan& block = map.arena("activations").slot("block");
  EXPECT_EQ(block.tensor_bytes(),
            int64_t{8192} * (5 * 2 * 8192 + 20480 + 2 * 28672 + 2 * 4 + 64 * 4 + 2 * 16 * 2));
}

// 68.5 billion elements of the blocks in one byte each; embedding, head and norms in two.
TEST(KeptTensors, FrozenMatricesAreStoredInTheFormatOnly) {
  const MemoryMap fp8 = memory_map(tuned("fp8"), find_profile("nemo-lora"));
  EXPECT_NEAR(gb(fp8, "frozen"), 68.5, 0.1);
  EXPECT_NEAR(gb(fp8, "weights"), 2 * (2 * 32000 * 8192) / kGb + 0.1, 0.1);
  EXPECT_FALSE(fp8.has("narrow"));
  const MemoryMap bf16 = memory_map(tuned("bf16"), find_profile("nemo-lora"));
  EXPECT_FALSE(bf16.has("frozen"));
  EXPECT_NEAR(gb(bf16, "weights"), 138, 0.2);
  // 9/16 of a byte, along rows and along columns.
  const MemoryMap fp4 = memory_map(tuned("fp4"), find_profile("nemo-lora"));
  EXPECT_NEAR(gb(fp4, "frozen"), 68.5 * 2 * 9 / 16, 0.1);
  EXPECT_FALSE(fp4.has("narrow"));
  // Only the adapters have gradients, masters and moments: 45 million elements.
  for (const char* arena : {"gradients", "master", "moment1", "moment2"}) {
    EXPECT_LT(gb(fp8, arena), 0.1) << arena;
  }
}

// mlcommons/training_results_v5.0: eight B200, one copy of the model on each; nvidia-smi reports
// 183,359 MiB. Nothing is recomputed.
TEST(KeptTensors, Llama70bIsTunedOnOneB200) {
  const double bytes =
      static_cast<double>(memory_map(tuned("fp8"), find_profile("nemo-lora")).total_bytes());
  EXPECT_LT(1.04 * bytes, 183359.0 * 1024 * 1024);
  EXPECT_GT(bytes, 160 * kGb);
}

TEST(KeptTensors, TrainedProductsKeepTheirInputQuantized) {
  const auto block = [](const char* precision, const char* profile) {
    const Recipe recipe = recipe_of("llama3.1-8b", {"batch={global: 1, micro: 1, sequence: 1024}",
                                                    std::string("precision=") + precision});
    return memory_map(recipe, find_profile(profile)).arena("activations").slot("block");
  };
  const SlotPlan wide = block("bf16", "megatron-te");
  const SlotPlan narrow = block("fp8", "megatron-te");
  for (const char* name : {"norm1.y", "norm2.y", "mlp.act"}) {
    EXPECT_EQ(2 * narrow.tensor(name).bytes, wide.tensor(name).bytes) << name;
  }
  EXPECT_EQ(narrow.tensor("mlp.up").bytes, wide.tensor("mlp.up").bytes);
  EXPECT_EQ(narrow.tensor("attention.out").bytes, wide.tensor("attention.out").bytes);
  EXPECT_EQ(narrow.tensor("attention.output.input").bytes, 1024 * 4096);
  EXPECT_EQ(block("fp4", "megatron-te").tensor("mlp.act").bytes, 1024 * 14336 * 9 / 16);
  // Implementations from before 8-bit products, and the trainer's own.
  EXPECT_EQ(block("fp8", "tutti").tensor_bytes(), block("bf16", "tutti").tensor_bytes());
}

}  // namespace
}  // namespace tutti::spec
