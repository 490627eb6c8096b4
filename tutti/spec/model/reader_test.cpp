#include "tutti/spec/model/reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

TEST(ModelReader, PresetsMergeKeyByKey) {
  const ModelConfig model =
      parse("model: {preset: llama3.1-8b, context: 512, rope_scaling: {factor: 4}}\n").model;
  EXPECT_EQ(model.context, 512);
  EXPECT_EQ(model.rope_scaling.factor, 4);
  EXPECT_EQ(model.rope_scaling.original_context, 8192);
  EXPECT_EQ(model.ffn, 14336);
}

TEST(ModelReader, UnknownPresetsGetASuggestion) {
  try {
    preset("gpt2-124");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_NE(std::string(error.what()).find("did you mean 'gpt2-124m'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("deepseek-v3"), std::string::npos);
  }
}

class BadModel : public testing::TestWithParam<Bad> {};

TEST_P(BadModel, NamesKeyValueAndRemedy) {
  expect_refused(std::string("model:\n") + GetParam().text + "\n", GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Models, BadModel,
    testing::Values(
        Bad{"  {layers: 2, hidden: 24, heads: 5, vocabulary: 10, context: 8}",
            {"model.heads", "5 does not divide model.hidden 24"}},
        Bad{"  {layers: 2, hidden: 24, heads: 4, kv_heads: 3, vocabulary: 10, context: 8}",
            {"model.kv_heads: 3", "model.heads 4", "nearest: 4"}},
        Bad{"  {layers: 2, hidden: 24, heads: 8, positions: rope, vocabulary: 10, context: 8}",
            {"model.head_dim: 3 is odd"}},
        Bad{"  {layers: 2, hidden: 24, heads: 4, activation: swiglu, vocabulary: 10, context: 8}",
            {"model.ffn", "missing"}},
        Bad{"  {hidden: 24, heads: 4, vocabulary: 10, context: 8}", {"model.layers: missing"}},
        Bad{"  {laers: 2, hidden: 24, heads: 4, vocabulary: 10, context: 8}",
            {"model.laers", "did you mean 'layers'"}},
        Bad{"  {preset: gpt2-124m, dropout: 1}", {"model.dropout: 1", "below 1"}},
        Bad{"  {preset: gpt2-124m, norm: rms, norm_bias: true}", {"model.norm_bias"}},
        Bad{"  {preset: gpt2-124m, rope_scaling: {factor: 2}}", {"model.rope_scaling", "learned"}},
        Bad{"  {preset: gpt2-124m, rope_scaling: {factr: 2}}",
            {"model.rope_scaling.factr", "did you mean 'factor'"}},
        Bad{"  {preset: gpt2-124m, moe: {top_k: 2}}", {"model.moe.experts: 0"}},
        Bad{"  {preset: mixtral-8x7b, moe: {top_k: 9}}", {"model.moe.top_k: 9", "1 to"}},
        Bad{"  {preset: gpt2-124m, latent: {key_value_rank: 8}}", {"model.latent", "grouped"}},
        Bad{"  {preset: gpt2-124m, attention: latent}", {"model.latent.key_value_rank: 0"}},
        Bad{"  {preset: deepseek-v3, positions: learned}", {"model.", "rope"}},
        Bad{"  {preset: gpt2-124m, tied_embeddings: yes}", {"'yes' is neither true nor false"}},
        Bad{"  [gpt2-124m]", {"model", "a list"}}));

}  // namespace
}  // namespace tutti::spec
