#include "tutti/spec/model/packed_params.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tutti/spec/model/params.h"

namespace tutti::spec {
namespace {

std::map<std::string, std::optional<PackKind>> kinds_of(const ModelConfig& model,
                                                        const LoraConfig& lora = {}) {
  std::map<std::string, std::optional<PackKind>> out;
  for (const PlacedParam& placed : param_layout(param_table(model, lora)).params) {
    out[placed.name] = pack_kind_of(model, placed.name, placed.param.shape, PackKind::int4);
  }
  return out;
}

TEST(PackedParams, ProductsAreInt4AndTheHeadIsInt8) {
  ModelConfig model;
  model.layers = 1;
  model.hidden = 64;
  model.heads = model.kv_heads = 2;
  model.head_dim = 32;
  model.ffn = 96;
  model.vocabulary = 50;
  model.context = 16;
  LoraConfig lora;
  lora.rank = 4;
  lora.targets = {"qkv"};
  auto kinds = kinds_of(model, lora);
  for (const char* name : {"blocks.0.attention.qkv.weight", "blocks.0.attention.output.weight",
                           "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight"}) {
    EXPECT_EQ(kinds.at(name), PackKind::int4) << name;
  }
  for (const char* name :
       {"blocks.0.attention.qkv.bias", "blocks.0.norm1.weight", "embedding.position.weight",
        "blocks.0.attention.qkv.lora_a.weight", "blocks.0.attention.qkv.lora_b.weight"}) {
    EXPECT_EQ(kinds.at(name), std::nullopt) << name;
  }
  // Embeddings only where they are the head.
  const std::string embedding = "embedding.token.weight";
  model.tied_embeddings = true;
  EXPECT_EQ(kinds_of(model).at(embedding), PackKind::int8);
  model.tied_embeddings = false;
  EXPECT_EQ(kinds_of(model).at(embedding), std::nullopt);
  EXPECT_EQ(kinds_of(model).at("head.weight"), PackKind::int8);
}

TEST(PackedParams, RoutersAreNotPacked) {
  ModelConfig model;
  EXPECT_EQ(pack_kind_of(model, "blocks.0.moe.router.weight", {4, 64}, PackKind::int4),
            std::nullopt);
  EXPECT_EQ(pack_kind_of(model, "blocks.0.moe.experts.down.weight", {4, 64, 32}, PackKind::int4),
            PackKind::int4);
  EXPECT_EQ(pack_kind_of(model, "blocks.0.attention.kv_up.weight", {64, 32}, PackKind::int8),
            std::nullopt);
}

}  // namespace
}  // namespace tutti::spec
