#include "tutti/spec/program/inference_work.h"

#include <gtest/gtest.h>

#include <array>

#include "tutti/spec/model/params.h"

namespace tutti::spec {
namespace {

ModelConfig small_llama() {
  ModelConfig model;
  model.activation = Activation::swiglu;
  model.norm = Norm::rms;
  model.positions = Positions::rope;
  model.norm_bias = false;
  model.vocabulary = 96;
  model.context = 64;
  model.hidden = 32;
  model.layers = 3;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn = 64;
  model.linear_bias = false;
  model.tied_embeddings = false;
  return model;
}

// By hand: qkv (32+32) x 32, output 32 x 32, gate and up 128 x 32, down 32 x 64.
constexpr double kBlock = 64 * 32 + 32 * 32 + 128 * 32 + 32 * 64;

TEST(InferenceWork, OfOneRowIsEveryWeightOnce) {
  const ModelConfig model = small_llama();
  const InferenceProgram program(model, {DType::bf16, {}});
  const TextRows row{1, 9, true};
  const InferenceWork work = program.pass({&row, 1});
  EXPECT_EQ(work.rows, 1);
  EXPECT_DOUBLE_EQ(work.product_flops, 2 * (3 * kBlock + 96 * 32));
  // Ten keys, in three layers, four heads of 8 + 8 columns.
  EXPECT_DOUBLE_EQ(work.attention_flops, 2.0 * 10 * 3 * 4 * 16);
  const double norms = 7 * 32;
  EXPECT_DOUBLE_EQ(work.weight_bytes, 2 * (3 * kBlock + 96 * 32 + norms + 32));
  // Keys and values of two heads: ten read, one written.
  EXPECT_DOUBLE_EQ(work.cache_bytes, 2.0 * 3 * (10 + 1) * 32);
  EXPECT_EQ(program.cache_token_bytes(), 2 * 3 * 32);
  const ParamLayout layout = param_layout(param_table(model));
  int64_t elements = 0;
  for (const PlacedParam& placed : layout.params) elements += placed.param.count();
  EXPECT_EQ(program.weight_bytes(), 2 * elements);
}

TEST(InferenceWork, OfAPromptIsThatOfItsRows) {
  const InferenceProgram program(small_llama(), {DType::bf16, {}});
  const TextRows prompt{5, 0, true};
  const InferenceWork whole = program.pass({&prompt, 1});
  double attention = 0;
  for (int64_t past = 0; past < 5; ++past) {
    const TextRows row{1, past, past == 4};
    attention += program.pass({&row, 1}).attention_flops;
  }
  EXPECT_DOUBLE_EQ(whole.attention_flops, attention);
  EXPECT_DOUBLE_EQ(whole.product_flops, 2 * (5 * 3 * kBlock + 96 * 32));  // one row has a head
}

TEST(InferenceWork, WindowsBoundWhatIsSeen) {
  ModelConfig model = small_llama();
  model.window = 4;
  model.global_layers = {1};
  const InferenceProgram program(model, {DType::bf16, {}});
  const TextRows row{1, 9, true};
  const InferenceWork work = program.pass({&row, 1});
  EXPECT_DOUBLE_EQ(work.attention_flops, 2.0 * (10 + 4 + 4) * 4 * 16);
  EXPECT_DOUBLE_EQ(work.cache_bytes, 2.0 * (10 + 4 + 4 + 3) * 32);
  const TextRows rows{3, 2, true};  // see 3, 4, 4 keys with the window, and 3, 4, 5 without
  EXPECT_DOUBLE_EQ(program.pass({&rows, 1}).attention_flops, 2.0 * (12 + 2 * 11) * 4 * 16);
}

TEST(InferenceWork, PackedWeightsHaveTheirBytes) {
  const ModelConfig model = small_llama();
  const InferenceProgram plain(model, {DType::bf16, {}});
  const InferenceProgram int8(model, {DType::bf16, PackKind::int8});
  const TextRows row{1, 0, true};
  const double norms = 7 * 32;
  const double packed = (3 * kBlock + 96 * 32) * (1 + 2.0 / 32) + 2 * norms + 2 * 32;
  EXPECT_DOUBLE_EQ(int8.pass({&row, 1}).weight_bytes, packed);
  EXPECT_DOUBLE_EQ(int8.pass({&row, 1}).product_flops, plain.pass({&row, 1}).product_flops);
  EXPECT_EQ(int8.cache_token_bytes(), plain.cache_token_bytes());
}

TEST(InferenceWork, ExpertsAreReadAsTheyAreChosen) {
  ModelConfig model = small_llama();
  model.moe.experts = 8;
  model.moe.top_k = 2;
  model.moe.expert_ffn = 16;
  const InferenceProgram program(model, {DType::bf16, {}});
  const auto bytes = [&](int64_t rows) {
    const TextRows text{rows, 0, false};
    return program.pass({&text, 1}).weight_bytes - static_cast<double>(rows) * 64;
  };
  const double expert = 2.0 * 3 * (32 * 32 + 32 * 16);  // bf16, three layers
  EXPECT_NEAR(bytes(2) - bytes(1), 8 * (0.75 - 0.75 * 0.75) * expert, 1e-6);
  EXPECT_NEAR(bytes(400) - bytes(1), 6 * expert, 1e-6);  // all of them
}

}  // namespace
}  // namespace tutti::spec
