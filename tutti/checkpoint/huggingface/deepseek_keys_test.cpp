// Published config.json files of the DeepSeek family: their parameters, the parts that they mean,
// export, and what is rejected.
#include "tutti/checkpoint/huggingface/deepseek_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/testing/hf_fixture.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {
namespace {

constexpr const char* kV2Lite = R"({
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
    "attention_bias": false, "attention_dropout": 0.0, "aux_loss_alpha": 0.001,
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
    "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
    "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
    "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
    "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
    "vocab_size": 102400})";
constexpr const char* kV2 = R"({
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
    "attention_bias": false, "ep_size": 1, "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 5120, "intermediate_size": 12288, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "moe_intermediate_size": 1536, "moe_layer_freq": 1,
    "n_group": 8, "n_routed_experts": 160, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 128, "num_experts_per_tok": 6, "num_hidden_layers": 60,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
    "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
    "routed_scaling_factor": 16.0, "scoring_func": "softmax", "topk_group": 3,
    "topk_method": "group_limited_greedy", "v_head_dim": 128, "vocab_size": 102400})";
constexpr const char* kV3 = R"({
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "attention_bias": false, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
    "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
    "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
    "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config":
    {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size":
    [128, 128]}, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
    "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
    "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128,
    "vocab_size": 129280})";

HfModel deepseek(const Json& config) { return read_hf_config(config, "config.json"); }
HfModel deepseek(const char* text) { return deepseek(parse_json(text, "config.json")); }

TEST(DeepSeekKeys, ParametersAreThePublished) {
  const std::vector<std::pair<const char*, int64_t>> all = {
      {kV2Lite, 15'706'484'224}, {kV2, 235'741'434'880}, {kV3, 671'026'419'200}};
  for (const auto& [text, parameters] : all) {
    EXPECT_EQ(spec::param_table(deepseek(text).model).count(), parameters) << text;
  }
}

TEST(DeepSeekKeys, MeanTheParts) {
  const spec::ModelConfig lite = deepseek(kV2Lite).model;
  EXPECT_EQ(lite.attention, spec::Attention::latent);
  EXPECT_EQ(lite.latent, (spec::LatentAttention{0, 512, 128, 64, 128, 0}));
  EXPECT_EQ(lite.moe.groups, 1);
  EXPECT_EQ(lite.moe.scores, spec::RouterScores::softmax);
  EXPECT_FALSE(lite.moe.renormalize || lite.moe.router_bias);
  EXPECT_EQ(lite.rope_scaling.amplitude, 1);
  const double m = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(lite.attention_scale, m * m / std::sqrt(192.0));
  EXPECT_EQ(spec::cached_columns(lite), 576);

  const spec::MixtureOfExperts second = deepseek(kV2).model.moe;
  EXPECT_EQ(second.groups, 8);
  EXPECT_EQ(second.top_groups, 3);
  EXPECT_EQ(second.group_best, 1);
  EXPECT_EQ(second.weight_factor, 16);

  const HfModel third = deepseek(kV3);
  EXPECT_EQ(third.model.moe.scores, spec::RouterScores::sigmoid);
  EXPECT_TRUE(third.model.moe.renormalize && third.model.moe.router_bias);
  EXPECT_EQ(third.model.moe.groups, 8);
  EXPECT_EQ(third.model.moe.top_groups, 4);
  EXPECT_EQ(third.model.moe.group_best, 2);
  EXPECT_EQ(third.model.moe.first_dense_layers, 3);
  EXPECT_EQ(third.left_out_layers, 1);
  EXPECT_EQ(third.notes.size(), 2U);
}

TEST(DeepSeekKeys, GoBack) {
  for (const char* text : {kV2Lite, kV2, kV3}) {
    Json config = parse_json(text, "config.json");
    config.erase("aux_loss_alpha");
    const spec::ModelConfig model = deepseek(config).model;
    const Json back = hf_config(model, DType::bf16, config);
    EXPECT_EQ(deepseek(back).model, model) << back.dump(2);
    EXPECT_EQ(back.at("model_type"), config.at("model_type"));
    EXPECT_EQ(back.at("rope_scaling").at("mscale_all_dim"),
              config.at("rope_scaling").at("mscale_all_dim"));
    EXPECT_FALSE(back.contains("quantization_config"));
    // From scratch the same.
    EXPECT_EQ(hf_family_of(model), deepseek(config).family);
  }
}

TEST(DeepSeekKeys, NormsOfWhatIsCompressedHaveTheirOwnEpsilon) {
  Json config = parse_json(kV3, "config.json");
  config["rms_norm_eps"] = 1e-5;
  const spec::ModelConfig model = deepseek(config).model;
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.latent.norm_epsilon, 1e-6);
  EXPECT_EQ(deepseek(hf_config(model, DType::f32, config)).model, model);
  // And a model where both are one is no model of theirs.
  spec::ModelConfig other = model;
  other.latent.norm_epsilon = 0;
  EXPECT_TRUE(says(error_of([&] { hf_family_of(other); }), ErrorKind::unsupported,
                   "model.latent.norm_epsilon: 1e-05"));
}

// What says the same in other words is the same model.
TEST(DeepSeekKeys, StatedDefaultsAreExported) {
  Json config = parse_json(kV3, "config.json");
  config["rms_norm_eps"] = 1e-6;
  config.erase("rope_scaling");
  spec::ModelConfig model = deepseek(config).model;
  model.latent.norm_epsilon = 1e-6;
  model.attention_scale = 1 / std::sqrt(192.0);
  EXPECT_EQ(hf_family_of(model), HfFamily::deepseek_v3);
}

TEST(DeepSeekKeys, AreRefusedByName) {
  struct Refused {
    const char* model;
    const char* key;
    Json value;
    const char* said;
  };
  const std::vector<Refused> all = {
      {kV3, "scoring_func", "softmax", "'scoring_func' is \"softmax\""},
      {kV3, "topk_method", "greedy", "'topk_method' is \"greedy\""},
      {kV2, "topk_method", "noaux_tc", "'topk_method' is \"noaux_tc\""},
      {kV2, "norm_topk_prob", true, "'norm_topk_prob' is true"},
      {kV2, "topk_group", 9, "model.moe.top_groups: 9"},
      {kV3, "topk_group", 0, "key 'topk_group' is 0"},
      {kV3, "n_group", 7, "model.moe.groups: 7"},
      {kV3, "num_experts_per_tok", 200, "model.moe.top_k: 200"},
      {kV3, "moe_layer_freq", 2, "'moe_layer_freq' is 2"},
      {kV3, "rope_interleave", false, "'rope_interleave' is false"},
      {kV3, "attention_bias", true, "'attention_bias' is true"},
      {kV3, "num_key_value_heads", 64, "'num_key_value_heads' is 64"},
      {kV3, "qk_rope_head_dim", 63, "rope_head_dim: 63"},
      {kV3, "kv_lora_rank", 0, "key 'kv_lora_rank' is 0"},
      {kV2, "num_experts_per_tok", nullptr, "'num_experts_per_tok' is missing"},
      {kV3, "routed_scaling_factor", 0, "model.moe.weight_factor: 0"},
      {kV3,
       "quantization_config",
       {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}},
       "'quantization_config.weight_block_size' is [64,64]"},
      {kV3,
       "quantization_config",
       {{"quant_method", "awq"}},
       "'quantization_config.quant_method' is \"awq\""},
  };
  for (const Refused& one : all) {
    Json config = parse_json(one.model, "config.json");
    config[one.key] = one.value;
    try {
      deepseek(config);
      ADD_FAILURE() << one.key << " " << one.value.dump() << " is not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(one.said), std::string::npos) << error.what();
    }
  }
}

// As transformers: a key that is not there is its default, null is none.
TEST(DeepSeekKeys, AbsentRanksAreTheUsual) {
  Json config = parse_json(kV2Lite, "config.json");
  config.erase("q_lora_rank");
  config.erase("kv_lora_rank");
  EXPECT_EQ(deepseek(config).model.latent.query_rank, 1536);
  EXPECT_EQ(deepseek(config).model.latent.key_value_rank, 512);
}

// Where every group may be chosen from there is no limit.
TEST(DeepSeekKeys, GroupsThatAllCountAreNone) {
  Json config = parse_json(kV3, "config.json");
  config["topk_group"] = 8;
  EXPECT_EQ(deepseek(config).model.moe.groups, 1);
}

}  // namespace
}  // namespace tutti::checkpoint
