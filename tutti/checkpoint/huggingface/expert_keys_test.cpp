// Published config.json files of models with experts, as transformers 4 wrote them: parameter
// counts of transformers, the parts of the model, the round trip, and refusals.
#include "tutti/checkpoint/huggingface/expert_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {
namespace {

struct PublishedExperts {
  const char* name;
  int64_t parameters;  // of transformers' model
  const char* config;
};

const std::vector<PublishedExperts>& published_experts() {
  static const std::vector<PublishedExperts> all = {
      {"Qwen3-30B-A3B", 30532122624, R"(
    {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": false,
    "attention_dropout": 0.0, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
    "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
    "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})"},
      {"OLMoE-1B-7B-0924", 6919161856, R"(
    {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "attention_bias": false,
    "attention_dropout": 0.0, "clip_qkv": null, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
    "num_hidden_layers": 16, "num_key_value_heads": 16, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
    "router_aux_loss_coef": 0.01, "tie_word_embeddings": false, "vocab_size": 50304})"},
      {"gpt-oss-20b", 20914757184, R"(
    {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true,
    "attention_dropout": 0.0, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
    "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention"], "max_position_embeddings": 131072,
    "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
    "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
    "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096,
    "truncate": false},
    "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
    "swiglu_limit": 7.0, "tie_word_embeddings": false, "vocab_size": 201088})"},
  };
  return all;
}

Json experts_config(const std::string& name) {
  for (const PublishedExperts& one : published_experts()) {
    if (one.name == name) return Json::parse(one.config);
  }
  ADD_FAILURE() << name;
  return {};
}

spec::ModelConfig experts_model(const Json& config) {
  return read_hf_config(config, "config.json").model;
}

std::string experts_refusal(const std::string& name, const char* key, Json value) {
  Json config = experts_config(name);
  config[key] = std::move(value);
  try {
    experts_model(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HfExperts, CountTheParametersOfPublishedModels) {
  for (const PublishedExperts& one : published_experts()) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(spec::param_table(experts_model(Json::parse(one.config)), 1).count(), one.parameters);
  }
}

TEST(HfExperts, AreWrittenAsRead) {
  for (const PublishedExperts& one : published_experts()) {
    SCOPED_TRACE(one.name);
    const Json config = Json::parse(one.config);
    const spec::ModelConfig model = experts_model(config);
    // The same for a model that was trained here from scratch.
    for (const Json& original : {config, Json::object()}) {
      const Json written = hf_config(model, DType::bf16, original);
      EXPECT_EQ(written.at("model_type"), config.at("model_type"));
      EXPECT_EQ(experts_model(written), model);
      for (const auto& [key, value] : config.items()) {
        if (value.is_null() || (original.empty() && !written.contains(key))) continue;
        EXPECT_EQ(written.at(key), value) << key;
      }
    }
  }
}

TEST(HfExperts, ReadTheParts) {
  const spec::ModelConfig qwen = experts_model(experts_config("Qwen3-30B-A3B"));
  EXPECT_EQ(qwen.query_key_norm, spec::QueryKeyNorm::head);
  EXPECT_TRUE(qwen.moe.renormalize);
  EXPECT_EQ(qwen.moe.expert_ffn, 768);
  EXPECT_EQ(qwen.moe.first_dense_layers, 0);
  const spec::ModelConfig olmoe = experts_model(experts_config("OLMoE-1B-7B-0924"));
  EXPECT_EQ(olmoe.query_key_norm, spec::QueryKeyNorm::whole);
  EXPECT_FALSE(olmoe.moe.renormalize);
  EXPECT_EQ(olmoe.moe.expert_ffn, 1024);
  EXPECT_EQ(olmoe.moe.balance_loss, 0.01);
}

TEST(HfExperts, ReadThePartsOfGptOss) {
  Json config = experts_config("gpt-oss-20b");
  const spec::ModelConfig model = experts_model(config);
  EXPECT_TRUE(model.attention_sinks && model.moe.biases && model.moe.renormalize);
  EXPECT_EQ(model.activation, spec::Activation::clamped_swiglu);
  EXPECT_EQ(model.biases, (spec::ProjectionBiases{true, true, false, false}));
  EXPECT_EQ(spec::window_of(model, 0, 4096), 128);
  EXPECT_EQ(spec::window_of(model, 1, 4096), 0);
  EXPECT_FALSE(model.rope_scaling.rounded);
  // These are the defaults of transformers.
  for (const char* key : {"layer_types", "rope_scaling", "rope_theta", "head_dim"}) {
    config.erase(key);
  }
  EXPECT_EQ(experts_model(config), model);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  const spec::ModelConfig unscaled = experts_model(config);
  EXPECT_EQ(unscaled.rope_scaling, spec::RopeScaling{});
  EXPECT_EQ(experts_model(hf_config(unscaled, DType::bf16, config)), unscaled);
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  EXPECT_EQ(experts_model(config), unscaled);
}

// If a key is absent transformers does not renormalize weights, and has 128 or 64 experts.
TEST(HfExperts, TakeTheDefaultsOfTransformers) {
  Json config = experts_config("Qwen3-30B-A3B");
  for (const char* key : {"norm_topk_prob", "num_experts", "moe_intermediate_size"}) {
    config.erase(key);
  }
  EXPECT_FALSE(experts_model(config).moe.renormalize);
  EXPECT_EQ(experts_model(config).moe.experts, 128);
  EXPECT_EQ(experts_model(config).moe.expert_ffn, 768);
  config["num_local_experts"] = 7;  // as transformers 5 writes it
  config["num_experts_per_tok"] = 2;
  EXPECT_EQ(experts_model(config).moe.experts, 7);
  config = experts_config("OLMoE-1B-7B-0924");
  config.erase("num_experts");
  EXPECT_EQ(experts_model(config).moe.experts, 64);
}

TEST(HfExperts, CanFollowDenseLayers) {
  Json config = experts_config("Qwen3-30B-A3B");
  config["mlp_only_layers"] = {1, 0};
  const spec::ModelConfig model = experts_model(config);
  EXPECT_EQ(model.moe.first_dense_layers, 2);
  EXPECT_TRUE(!spec::is_routed(model, 1) && spec::is_routed(model, 2));
  EXPECT_EQ(hf_config(model, DType::f32, config).at("mlp_only_layers"), Json({0, 1}));
}

TEST(HfExperts, CanHaveTheWindowInAllLayers) {
  Json config = experts_config("Qwen3-30B-A3B");
  config["sliding_window"] = 512;
  EXPECT_EQ(experts_model(config).window, 0);
  config["use_sliding_window"] = true;
  const spec::ModelConfig model = experts_model(config);
  EXPECT_EQ(model.window, 512);
  EXPECT_TRUE(model.global_layers.empty());
  EXPECT_EQ(experts_model(hf_config(model, DType::f32, config)), model);
}

TEST(HfExperts, AreRefusedByName) {
  struct Refused {
    const char* model;
    const char* key;
    Json value;
    const char* said;
  };
  const std::vector<Refused> all = {
      {"Qwen3-30B-A3B", "decoder_sparse_step", 2, "'decoder_sparse_step' is 2"},
      {"Qwen3-30B-A3B", "decoder_sparse_step", 0, "key 'decoder_sparse_step' is 0"},
      {"Qwen3-30B-A3B", "mlp_only_layers", {3}, "'mlp_only_layers' is [3]"},
      {"Qwen3-30B-A3B", "mlp_only_layers", "0", "'mlp_only_layers' is \"0\""},
      {"Qwen3-30B-A3B", "mlp_only_layers", {0.5}, "'mlp_only_layers' is [0.5]"},
      {"Qwen3-30B-A3B", "norm_topk_prob", 1, "key 'norm_topk_prob' is 1"},
      {"Qwen3-30B-A3B", "num_experts", 0, "key 'num_experts' is 0"},
      {"Qwen3-30B-A3B", "num_experts", 4, "model.moe.top_k: 8"},
      {"Qwen3-30B-A3B", "moe_intermediate_size", -1, "key 'moe_intermediate_size' is -1"},
      {"gpt-oss-20b", "swiglu_limit", 5.0, "'swiglu_limit' is 5"},
      {"gpt-oss-20b", "swiglu_alpha", 1.5, "'swiglu_alpha' is 1.5"},
      {"gpt-oss-20b",
       "quantization_config",
       {{"quant_method", "awq"}},
       "'quantization_config.quant_method' is \"awq\""},
      {"gpt-oss-20b", "sliding_window", nullptr, "needs model.window"},
      {"Qwen3-30B-A3B",
       "quantization_config",
       {{"quant_method", "mxfp4"}},
       "'quantization_config' is"},
      {"OLMoE-1B-7B-0924", "clip_qkv", 8.0, "'clip_qkv' is 8"},
      {"OLMoE-1B-7B-0924", "router_aux_loss_coef", -1, "model.moe.balance_loss: -1"},
  };
  for (const Refused& one : all) {
    const std::string said = experts_refusal(one.model, one.key, one.value);
    EXPECT_NE(said.find(one.said), std::string::npos) << one.model << ": " << said;
    EXPECT_NE(said.find("config.json"), std::string::npos) << said;
  }
}

// Combinations that no type has are refused by name.
TEST(HfExperts, AreExportedIfATypeHasThem) {
  const auto refused = [](const spec::ModelConfig& model) {
    try {
      hf_family_of(model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  spec::ModelConfig model = experts_model(experts_config("Qwen3-30B-A3B"));
  EXPECT_EQ(hf_family_of(model), HfFamily::qwen3_moe);
  model.moe.z_loss = 0.01;  // acts in training only
  EXPECT_EQ(hf_family_of(model), HfFamily::qwen3_moe);
  model.moe.shared_experts = 1;
  EXPECT_NE(refused(model).find("model.query_key_norm"), std::string::npos) << refused(model);
  model.moe.shared_experts = 0;
  model.query_key_norm = spec::QueryKeyNorm::none;
  model.head_dim = model.hidden / model.heads;
  EXPECT_EQ(hf_family_of(model), HfFamily::mixtral);
  model.moe.renormalize = false;
  EXPECT_NE(refused(model).find("renormalize"), std::string::npos) << refused(model);
}

}  // namespace
}  // namespace tutti::checkpoint
