#include "tutti/spec/recipe/lora.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

// B2 T4 H6 heads 3 (D2) F24 V10, two layers.
constexpr const char* kTinyLora = R"(
model: {layers: 2, hidden: 6, heads: 3, vocabulary: 10, context: 4}
batch: {global: 2}
)";

Recipe tiny(const std::string& lora) {
  return parse(std::string(kTinyLora) + "lora: " + lora + "\n");
}

std::string error_of(const std::string& preset_name, const std::string& lora) {
  try {
    parse("model: " + preset_name + "\nlora: " + lora + "\n");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lora, DefaultsAreFilledInAndReadBack) {
  const Recipe recipe = tiny("{rank: 4}");
  EXPECT_EQ(recipe.lora.alpha, 8);
  EXPECT_EQ(recipe.lora.targets, (std::vector<std::string>{"qkv", "output"}));
  EXPECT_EQ(parse_recipe(to_yaml(recipe), "again", {}, kModels), recipe);
  const Recipe one = parse(kTinyLora, {"lora.rank=2", "lora.targets=mlp"});
  EXPECT_EQ(one.lora.targets, std::vector<std::string>{"mlp"});
  EXPECT_FALSE(parse(kTinyLora).lora.enabled());
}

TEST(Lora, ImpossibleValuesAreNamed) {
  EXPECT_NE(error_of("gpt2-124m", "{alpha: 3}").find("lora.rank: 0"), std::string::npos);
  EXPECT_NE(error_of("gpt2-124m", "{rank: 4, targets: [querry]}").find("did you mean 'query'"),
            std::string::npos);
  EXPECT_NE(error_of("gpt2-124m", "{rank: 4, targets: [mlp.gate]}").find("swiglu"),
            std::string::npos);
  EXPECT_NE(error_of("gpt2-124m", "{rank: 4, targets: [qkv, value]}").find("qkv covers value"),
            std::string::npos);
  EXPECT_NE(error_of("gpt2-124m", "{rank: 4, targets: [qkv, qkv]}").find("twice"),
            std::string::npos);
  EXPECT_NE(error_of("gpt2-124m", "{rank: 4, dropout: 1}").find("lora.dropout"), std::string::npos);
  EXPECT_NE(error_of("mixtral-8x7b", "{rank: 4, targets: [mlp]}").find("8 experts"),
            std::string::npos);
  EXPECT_NE(error_of("deepseek-v3", "{rank: 4}").find("lora"), std::string::npos);
}

// Hugging Face PEFT prints the same counts: GPT-2 with c_attn 589,824 (its quick tour); Llama-2 70B
// as MLPerf Training tunes it (query, key, value and output projections, rank 16).
TEST(Lora, ParameterCountsOfKnownConfigurations) {
  LoraConfig lora = {16, 32, 0.1, {"qkv"}};
  EXPECT_EQ(param_table(preset("gpt2-124m"), lora).trainable_count(), 589824);
  EXPECT_EQ(param_table(preset("gpt2-124m"), lora).count(),
            param_table(preset("gpt2-124m")).count() + 589824);
  lora.targets = {"query", "key", "value", "output"};
  const int64_t layer = 16 * (4 * 8192 + 2 * 8192 + 2 * 1024);
  EXPECT_EQ(param_table(preset("llama2-70b"), lora).trainable_count(), 80 * layer);
}

TEST(Lora, TrainableParametersComeFirstInTheArenas) {
  const Recipe recipe = tiny("{rank: 2, targets: [query, value, output, mlp]}");
  const ParamTable table = param_table(recipe.model, recipe.lora);
  const ParamLayout layout = param_layout(table);
  const ParamLayout plain = param_layout(param_table(recipe.model));
  EXPECT_EQ(layout.elements, layout.trainable_elements + plain.elements);
  EXPECT_EQ(plain.trainable_elements, plain.elements);
  for (const PlacedParam& placed : layout.params) {
    const bool adapter = placed.name.find(".lora_") != std::string::npos;
    EXPECT_EQ(placed.param.trainable, adapter) << placed.name;
    EXPECT_EQ(placed.element_offset < layout.trainable_elements, adapter) << placed.name;
  }
  const Param& b = layout.find("blocks.1.attention.value.lora_b.weight").param;
  EXPECT_EQ(b.shape, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(b.init, Init::zeros);
  const Param& a = layout.find("blocks.0.mlp.down.lora_a.weight").param;
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 24}));
  EXPECT_DOUBLE_EQ(a.init_bound, 1 / std::sqrt(24.0));
  const MemoryMap map = memory_map(recipe);
  EXPECT_EQ(map.arena("weights").slot("flat").tensor_bytes(), 2 * layout.elements);
  for (const char* name : {"master", "gradients", "moment1", "moment2"}) {
    EXPECT_EQ(map.arena(name).bytes, 4 * layout.trainable_elements) << name;
  }
}

// Of GPT-2 124M in bf16 only the weights themselves stay: 2 instead of 18 bytes a parameter.
TEST(Lora, FrozenParametersTakeTwoBytes) {
  const Recipe full = recipe_of("gpt2-124m");
  Recipe tuned = full;
  tuned.lora = {16, 32, 0.1, {"qkv", "output", "mlp"}};
  int64_t bytes[2] = {};
  for (const char* name : {"weights", "master", "gradients", "moment1", "moment2"}) {
    bytes[0] += memory_map(full).arena(name).bytes;
    bytes[1] += memory_map(tuned).arena(name).bytes;
  }
  const ParamTable table = param_table(tuned.model, tuned.lora);
  const auto trained = static_cast<double>(table.trainable_count());
  const double frozen = static_cast<double>(table.count()) - trained;
  EXPECT_NEAR(static_cast<double>(bytes[0]), 18 * frozen, 0.001 * 18 * frozen);
  EXPECT_NEAR(static_cast<double>(bytes[1]), 2 * frozen + 18 * trained, 0.001 * 2 * frozen);
}

TEST(Lora, TensorParallelRanksSplitAdaptersAsTheirProjections) {
  const ModelConfig model = preset("llama2-70b");  // 64 heads, 8 key/value heads
  const LoraConfig lora = {16, 32, 0, {"qkv", "output", "mlp"}};
  Mesh mesh;
  mesh.tp = 4;
  for (const ParamGroup& group : param_table(model, lora).groups) {
    for (const Param& param : group.params) {
      if (param.name.find(".lora_") == std::string::npos) continue;
      const bool is_a = param.name.find("lora_a") != std::string::npos;
      const bool column = param.name.find("qkv") != std::string::npos ||
                          param.name.find("gate") != std::string::npos ||
                          param.name.find("mlp.up") != std::string::npos;
      EXPECT_EQ(param.local_count(mesh), param.count() / (is_a == column ? 1 : 4)) << param.name;
    }
  }
}

std::vector<std::string> names(const std::vector<Op>& ops) {
  std::vector<std::string> list;
  list.reserve(ops.size());
  for (const Op& op : ops) list.emplace_back(op.name);
  return list;
}

// Where the lowest adapter of block 0 is, its backward ends.
TEST(Lora, NothingBelowTheLowestAdapterRunsBackward) {
  const auto backward = [](const char* targets, const char* kind) {
    const Recipe recipe = tiny(std::string("{rank: 2, targets: [") + targets + "]}");
    return names(make_program(recipe, tutti_profile()).kind(kind).backward_input);
  };
  using Names = std::vector<std::string>;
  const Names mlp = {"gemm", "activation_backward", "gemm", "norm_backward_input"};
  Names qkv = mlp;
  qkv.insert(qkv.end(), {"gemm", "attention_backward", "gemm"});
  EXPECT_EQ(backward("qkv", "block.first"), qkv);
  Names output = mlp;
  output.emplace_back("gemm");
  EXPECT_EQ(backward("output", "block.first"), output);
  EXPECT_EQ(backward("mlp.up", "block.first"), (Names{"gemm", "activation_backward", "gemm"}));
  EXPECT_EQ(backward("mlp.down", "block.first"), Names{"gemm"});
  Names whole = mlp;
  whole.insert(whole.end(),
               {"gemm", "attention_backward", "gemm", "gemm", "gemm", "norm_backward_input"});
  EXPECT_EQ(backward("qkv", "block"), whole);
}

TEST(Lora, FrozenWeightsHaveNoGradientWork) {
  const Program program =
      make_program(tiny("{rank: 2, dropout: 0.1, targets: [qkv]}"), tutti_profile());
  EXPECT_EQ(names(program.kind("block").backward_weight),
            (std::vector<std::string>{"dropout", "gemm", "gemm"}));
  EXPECT_TRUE(program.kind("embedding").backward_weight.empty());
  EXPECT_TRUE(program.kind("embedding").backward_input.empty());
  EXPECT_TRUE(program.kind("head").backward_weight.empty());
  // Head: logits, loss, input gradient.
  EXPECT_EQ(names(program.kind("head").forward),
            (std::vector<std::string>{"norm_forward", "gemm", "cross_entropy", "gemm"}));
  const Op& update = program.updates[0].update.back();
  EXPECT_EQ(
      update.dims[0],
      param_layout(param_table(tiny("{rank: 2}").model, {2, 4, 0.1, {"qkv"}})).trainable_elements);
}

TEST(Lora, ModelFlopsAreThoseOfTheProgram) {
  for (const char* model : {"gpt2-124m", "llama3.1-8b"}) {
    for (const char* targets :
         {"qkv", "query, value", "output", "mlp", "mlp.down", "mlp.up", "qkv, output, mlp"}) {
      const Recipe recipe =
          parse(std::string("model: ") + model + "\nbatch: {global: 2, sequence: 1024}\n" +
                "lora: {rank: 16, targets: [" + targets + "]}\n");
      const Program program = make_program(recipe, tutti_profile());
      const Work work = step_work(program, make_schedule(recipe), 0);
      const double flops = model_flops_per_step(recipe);
      EXPECT_NEAR(work.model_flops, flops, 1e-9 * flops) << model << " " << targets;
      Recipe full = recipe;
      full.lora = {};
      EXPECT_LT(flops, 0.75 * model_flops_per_step(full));
      EXPECT_GT(flops, 0.5 * model_flops_per_step(full));
    }
  }
}

TEST(Lora, MeshesAreDescribed) {
  const Recipe recipe = parse(R"(
model: {preset: llama2-70b, context: 8192}
batch: {global: 8, micro: 1}
lora: {rank: 16, alpha: 32, dropout: 0.1, targets: [qkv, output]}
parallel: {dp: 2, tp: 4, cp: 2, zero: 1}
)");
  const Program program = make_program(recipe, tutti_profile());
  const LocalElements trained =
      local_elements(param_table(recipe.model, recipe.lora, 64 * 4), recipe, 0, true);
  ASSERT_EQ(program.stages[0].reduce.size(), 1U);
  EXPECT_EQ(program.stages[0].reduce[0].bytes, 4.0 * static_cast<double>(trained.total()));
  EXPECT_EQ(program.stages[0].gather[0].bytes, 2.0 * static_cast<double>(trained.total()));
}

}  // namespace
}  // namespace tutti::spec
