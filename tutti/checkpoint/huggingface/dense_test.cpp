// Published config.json files of the dense families, as transformers 4 wrote them: parameter counts
// of transformers, the parts of the model, and the round trip.
#include "tutti/checkpoint/huggingface/dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {
namespace {

struct Published {
  const char* name;
  int64_t parameters;  // of transformers' model
  const char* config;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {"Qwen2.5-7B", 7615616512, R"(
    {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584,
    "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
    "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 152064,
    "hidden_act": "silu", "attention_dropout": 0.0})"},
      {"Qwen3-0.6B-Base", 596049920, R"(
    {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false,
    "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})"},
      {"gemma-2-2b", 2614341888, R"(
    {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "attention_bias": false,
    "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation":
    "gelu_pytorch_tanh", "hidden_size": 2304, "intermediate_size": 9216,
    "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 26,
    "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta":
    10000.0, "sliding_window": 4096, "vocab_size": 256000})"},
      {"gemma-3-1b-pt", 999885952, R"(
    {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attention_bias":
    false, "attention_dropout": 0.0, "attn_logit_softcapping": null, "final_logit_softcapping":
    null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4,
    "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta":
    1000000, "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144})"},
      {"phi-4", 14659507200, R"(
    {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": false,
    "attention_dropout": 0.0, "embd_pdrop": 0.0, "hidden_act": "silu", "hidden_size": 5120,
    "intermediate_size": 17920, "max_position_embeddings": 16384, "num_attention_heads": 40,
    "num_hidden_layers": 40, "num_key_value_heads": 10, "original_max_position_embeddings":
    16384, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta":
    250000, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 100352})"},
      {"OLMo-2-1124-7B", 7298617344, R"(
    {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "attention_bias": false,
    "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size":
    11008, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta":
    500000, "tie_word_embeddings": false, "vocab_size": 100352})"},
      {"SmolLM3-3B-Base", 3075098624, R"(
    {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "attention_bias": false,
    "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size":
    11008, "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false,
    "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1,
    0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0], "num_attention_heads": 16,
    "num_hidden_layers": 36, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling":
    null, "rope_theta": 5000000.0, "sliding_window": null, "use_sliding_window": false,
    "vocab_size": 128256})"},
      {"granite-3.1-2b-base", 2533531648, R"(
    {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "attention_bias": false,
    "attention_dropout": 0.1, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "logits_scaling": 8.0,
    "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32,
    "num_hidden_layers": 40, "num_key_value_heads": 8, "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 5000000.0, "tie_word_embeddings":
    true, "vocab_size": 49155})"},
      {"GLM-4-9B-0414", 9400279040, R"(
    {"architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "attention_bias": true,
    "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 13696, "max_position_embeddings": 32768, "num_attention_heads": 32,
    "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size":
    151552})"},
  };
  return all;
}

Json published_config(const char* name) {
  for (const Published& one : published()) {
    if (std::string(one.name) == name) return Json::parse(one.config);
  }
  ADD_FAILURE() << name;
  return {};
}

spec::ModelConfig dense_model(const Json& config) {
  return read_hf_config(config, "config.json").model;
}

std::string dense_refusal(const Json& config) {
  try {
    dense_model(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HfDense, CountsTheParametersOfPublishedModels) {
  for (const Published& one : published()) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(spec::param_table(dense_model(Json::parse(one.config)), 1).count(), one.parameters);
  }
}

// For every key of the published file, the written file has the same value.
TEST(HfDense, WritesWhatItRead) {
  for (const Published& one : published()) {
    SCOPED_TRACE(one.name);
    const Json config = Json::parse(one.config);
    const spec::ModelConfig model = dense_model(config);
    const Json written = hf_config(model, DType::bf16, config);
    EXPECT_EQ(written.at("model_type"), config.at("model_type"));
    EXPECT_EQ(dense_model(written), model);
    for (const auto& [key, value] : config.items()) {
      // Keys without effect, or for training only.
      const bool passive = key == "original_max_position_embeddings" || key == "resid_pdrop" ||
                           key == "embd_pdrop" || key == "attention_dropout" ||
                           key == "sliding_window_pattern" || key == "hidden_act" ||
                           (key == "sliding_window" && model.window == 0) ||
                           (key == "attention_bias" &&
                            model.norm_placement == spec::NormPlacement::before && value == false);
      if (value.is_null() || passive) continue;
      ASSERT_TRUE(written.contains(key)) << key;
      EXPECT_EQ(written.at(key), value) << key;
    }
  }
}

// Layers, sizes and multipliers as the papers and model cards state them.
TEST(HfDense, ReadsTheParts) {
  const spec::ModelConfig qwen2 = dense_model(published_config("Qwen2.5-7B"));
  EXPECT_TRUE(qwen2.biases.qkv && !qwen2.biases.output && !qwen2.linear_bias);
  EXPECT_EQ(qwen2.window, 0);  // use_sliding_window is false
  EXPECT_EQ(dense_model(published_config("Qwen3-0.6B-Base")).query_key_norm,
            spec::QueryKeyNorm::head);

  const spec::ModelConfig gemma2 = dense_model(published_config("gemma-2-2b"));
  EXPECT_EQ(spec::window_of(gemma2, 0, 8192), 4096);
  EXPECT_EQ(spec::window_of(gemma2, 1, 8192), 0);
  EXPECT_EQ(spec::window_of(gemma2, 0, 4096), 0);
  EXPECT_EQ(gemma2.attention_scale, 1.0 / 16);
  EXPECT_EQ(gemma2.embedding_multiplier, 48);
  EXPECT_EQ(gemma2.norm_offset, 1);
  EXPECT_TRUE(gemma2.attention_softcap == 50 && gemma2.logit_softcap == 30);

  const spec::ModelConfig gemma3 = dense_model(published_config("gemma-3-1b-pt"));
  EXPECT_EQ(gemma3.global_layers, (std::vector<int64_t>{5, 11, 17, 23}));
  EXPECT_TRUE(gemma3.window_rope_theta == 1e4 && gemma3.rope_theta == 1e6);
  EXPECT_TRUE(spec::has_window_rope(gemma3, 4) && !spec::has_window_rope(gemma3, 5));

  EXPECT_EQ(dense_model(published_config("OLMo-2-1124-7B")).norm_placement,
            spec::NormPlacement::after);
  const spec::ModelConfig smol = dense_model(published_config("SmolLM3-3B-Base"));
  EXPECT_EQ(smol.unrotated_layers, (std::vector<int64_t>{3, 7, 11, 15, 19, 23, 27, 31, 35}));
  const spec::ModelConfig granite = dense_model(published_config("granite-3.1-2b-base"));
  EXPECT_EQ(granite.residual_multiplier, 0.22);
  EXPECT_EQ(granite.logit_divisor, 8);
  const spec::ModelConfig glm = dense_model(published_config("GLM-4-9B-0414"));
  EXPECT_EQ(glm.rotated_dims, 64);
  EXPECT_EQ(glm.norm_placement, spec::NormPlacement::both);
  EXPECT_TRUE(glm.biases.qkv && !glm.biases.output);
}

TEST(HfDense, ReadsWindowsOfSomeLayers) {
  Json config = published_config("Qwen2.5-7B");
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 3;
  spec::ModelConfig model = dense_model(config);
  EXPECT_EQ(model.window, 131072);
  EXPECT_EQ(model.global_layers, (std::vector<int64_t>{0, 1, 2}));
  Json kinds = Json::array();
  for (int i = 0; i < 28; ++i) kinds.push_back(i == 4 ? "full_attention" : "sliding_attention");
  config["layer_types"] = kinds;
  model = dense_model(config);
  EXPECT_EQ(model.global_layers, (std::vector<int64_t>{4}));
  EXPECT_EQ(hf_config(model, DType::f32, config).at("layer_types"), kinds);
}

TEST(HfDense, RefusesByName) {
  const auto refused = [](const char* name, const char* key, Json value) {
    Json config = published_config(name);
    config[key] = std::move(value);
    return dense_refusal(config);
  };
  EXPECT_NE(refused("phi-4", "rope_scaling",
                    {{"type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}})
                .find("'rope_scaling.type' is \"longrope\""),
            std::string::npos);
  EXPECT_NE(refused("gemma-2-2b", "hidden_activation", "gelu").find("'hidden_activation'"),
            std::string::npos);
  EXPECT_NE(refused("gemma-3-1b-pt", "use_bidirectional_attention", true)
                .find("'use_bidirectional_attention'"),
            std::string::npos);
  EXPECT_NE(refused("SmolLM3-3B-Base", "no_rope_layers", {1, 0}).find("'no_rope_layers'"),
            std::string::npos);
  EXPECT_NE(refused("Qwen3-0.6B-Base", "layer_types", {"full_attention"}).find("'layer_types'"),
            std::string::npos);
}

// A wrong type, a number out of range, a list that does not fit: each is an error that names the
// file and the key, and none is misread.
TEST(HfDense, RefusesDamagedFiles) {
  struct Damage {
    const char* model;
    const char* key;
    Json value;
    const char* said;
  };
  const Json full = "full_attention";
  const std::vector<Damage> all = {
      {"Qwen2.5-7B", "hidden_size", "3584", "key 'hidden_size' is \"3584\""},
      {"Qwen2.5-7B", "hidden_size", 0, "key 'hidden_size' is 0"},
      {"Qwen2.5-7B", "num_hidden_layers", int64_t{1} << 40, "'num_hidden_layers' is"},
      {"Qwen2.5-7B", "num_key_value_heads", 5, "num_key_value_heads 5"},
      {"Qwen2.5-7B", "num_attention_heads", 27, "num_attention_heads 27"},
      {"Qwen2.5-7B", "use_sliding_window", "yes", "key 'use_sliding_window' is \"yes\""},
      {"Qwen2.5-7B", "max_window_layers", -1, "key 'max_window_layers' is -1"},
      {"Qwen2.5-7B", "sliding_window", 0, "key 'sliding_window' is 0"},
      {"Qwen2.5-7B", "rms_norm_eps", 0, "model.norm_epsilon: 0"},
      {"Qwen2.5-7B", "layer_types", "sliding_attention", "'layer_types' is not a list of 28"},
      {"Qwen2.5-7B", "partial_rotary_factor", 0.5, "'partial_rotary_factor' is 0.5"},
      {"Qwen2.5-7B", "rope_parameters", 7, "key 'rope_parameters' is 7"},
      {"Qwen2.5-7B", "rope_parameters", {{"rope_theta", -1}}, "model.rope_theta: -1"},
      {"Qwen2.5-7B",
       "rope_parameters",
       {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}},
       "'rope_parameters.partial_rotary_factor' is 0.5"},
      {"Qwen2.5-7B",
       "rope_parameters",
       {{"full_attention", {{"rope_theta", 1e6}}}},
       "'rope_parameters.full_attention' is"},
      {"Qwen2.5-7B",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 0.5}},
       "model.rope_scaling.factor: 0.5"},
      {"Qwen2.5-7B",
       "rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 1}, {"beta_slow", 32}},
       "model.rope_scaling.fast_turns: 1"},
      {"Qwen3-0.6B-Base", "head_dim", 127, "model.head_dim: 127"},
      {"Qwen3-0.6B-Base", "layer_types", Json::array({full, 3}),
       "'layer_types' is not a list of 28"},
      {"gemma-2-2b", "query_pre_attn_scalar", 0, "'query_pre_attn_scalar' is 0"},
      {"gemma-2-2b", "query_pre_attn_scalar", -256, "'query_pre_attn_scalar' is -256"},
      {"gemma-2-2b", "attn_logit_softcapping", -50, "model.attention_softcap: -50"},
      {"gemma-2-2b", "final_logit_softcapping", "30", "key 'final_logit_softcapping' is \"30\""},
      {"gemma-3-1b-pt", "sliding_window_pattern", 0, "key 'sliding_window_pattern' is 0"},
      {"gemma-3-1b-pt", "sliding_window", nullptr, "needs model.window"},
      {"gemma-3-1b-pt",
       "rope_parameters",
       {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}},
       "'rope_parameters.sliding_attention' scales"},
      {"gemma-3-1b-pt",
       "rope_parameters",
       {{"full_attention", {{"rope_type", "linear"}}}},
       "'rope_parameters.full_attention.factor' is missing"},
      {"phi-4", "partial_rotary_factor", 0, "'partial_rotary_factor' is 0"},
      {"phi-4", "partial_rotary_factor", 1.5, "'partial_rotary_factor' is 1.5"},
      {"phi-4", "partial_rotary_factor", 1e300, "'partial_rotary_factor' is 1e+300"},
      {"phi-4", "partial_rotary_factor", 0.04, "model.rotated_dims: 5"},
      {"phi-4",
       "rope_parameters",
       {{"partial_rotary_factor", "half"}},
       "key 'rope_parameters.partial_rotary_factor' is \"half\""},
      {"SmolLM3-3B-Base", "no_rope_layers", "0", "'no_rope_layers' is not a list"},
      {"SmolLM3-3B-Base", "no_rope_layers", std::vector<int>(36, 2), "'no_rope_layers' is [2,"},
      {"SmolLM3-3B-Base", "no_rope_layer_interval", 0, "key 'no_rope_layer_interval' is 0"},
      {"granite-3.1-2b-base", "attention_multiplier", 0, "'attention_multiplier' is 0"},
      {"granite-3.1-2b-base", "residual_multiplier", 0, "model.residual_multiplier: 0"},
      {"granite-3.1-2b-base", "logits_scaling", -8, "model.logit_divisor"},
      {"granite-3.1-2b-base", "embedding_multiplier", Json::array({12}),
       "key 'embedding_multiplier' is [12]"},
      {"GLM-4-9B-0414", "attention_bias", 1, "key 'attention_bias' is 1"},
      {"GLM-4-9B-0414", "partial_rotary_factor", -0.5, "'partial_rotary_factor' is -0.5"},
      {"OLMo-2-1124-7B", "hidden_act", "gelu", "'hidden_act' is \"gelu\""},
  };
  for (const Damage& damage : all) {
    Json config = published_config(damage.model);
    config[damage.key] = damage.value;
    const std::string said = dense_refusal(config);
    EXPECT_NE(said.find(damage.said), std::string::npos)
        << damage.model << " " << damage.key << ": " << said;
    EXPECT_NE(said.find("config.json"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace tutti::checkpoint
