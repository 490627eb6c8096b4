#include "tutti/checkpoint/huggingface/config.h"

#include <gtest/gtest.h>

#include "tutti/checkpoint/testing/hf_fixture.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti_test_paths.h"

namespace tutti::checkpoint {
namespace {

HfModel read(const Json& config) { return read_hf_config(config, "config.json"); }

Error refused(Json config, const char* key, const Json& value) {
  config[key] = value;
  return error_of([&] { read(config); });
}

TEST(HfConfig, ReadsLlama) {
  const HfModel hf = read(llama_json());
  const spec::ModelConfig& model = hf.model;
  EXPECT_EQ(hf.family, HfFamily::llama);
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.hidden, 36);
  EXPECT_EQ(model.heads, 6);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.head_dim, 6);
  EXPECT_EQ(model.ffn, 50);
  EXPECT_EQ(model.vocabulary, 37);
  EXPECT_EQ(model.context, 64);
  EXPECT_EQ(model.norm, spec::Norm::rms);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.activation, spec::Activation::swiglu);
  EXPECT_EQ(model.positions, spec::Positions::rope);
  EXPECT_EQ(model.rope_theta, 5e5);
  EXPECT_EQ(model.rope_scaling, (spec::RopeScaling{8, 1, 4, 32}));
  EXPECT_FALSE(model.linear_bias || model.norm_bias || model.tied_embeddings);
  EXPECT_TRUE(hf.notes.empty());
}

TEST(HfConfig, TakesTheDefaultsOfTransformers) {
  Json config = llama_json();
  for (const char* key : {"num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_scaling",
                          "hidden_act", "tie_word_embeddings", "attention_bias", "architectures"}) {
    config.erase(key);
  }
  const spec::ModelConfig model = read(config).model;
  EXPECT_EQ(model.kv_heads, 6);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.rope_theta, 1e4);
  EXPECT_EQ(model.rope_scaling, spec::RopeScaling{});
  EXPECT_FALSE(model.tied_embeddings);

  for (const char* type : {"mistral", "mixtral"}) {
    Json other = mixtral_json();
    other["model_type"] = type;
    other.erase("architectures");
    other["num_attention_heads"] = 16;
    other["head_dim"] = 6;
    other["num_key_value_heads"] = nullptr;
    EXPECT_EQ(read(other).model.kv_heads, 16) << type;
    other.erase("num_key_value_heads");
    EXPECT_EQ(read(other).model.kv_heads, 8) << type;
  }

  const HfModel gpt2 = read(gpt2_json());
  EXPECT_EQ(gpt2.model.ffn, 120);
  EXPECT_TRUE(gpt2.model.tied_embeddings && gpt2.model.linear_bias && gpt2.model.norm_bias);
  EXPECT_EQ(gpt2.model.dropout, 0.1);
  ASSERT_EQ(gpt2.notes.size(), 1U);  // attn_pdrop is 0.1 unless given
  EXPECT_NE(gpt2.notes[0].find("attn_pdrop"), std::string::npos);
}

TEST(HfConfig, ReadsMixtralAndMistral) {
  const spec::ModelConfig model = read(mixtral_json()).model;
  EXPECT_EQ(model.moe.experts, 3);
  EXPECT_EQ(model.moe.top_k, 2);
  EXPECT_EQ(model.moe.expert_ffn, 50);
  EXPECT_EQ(model.moe.balance_loss, 0.001);

  Json mistral = mixtral_json();
  mistral["model_type"] = "mistral";
  mistral["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(read(mistral).model.moe.experts, 0);
  EXPECT_EQ(read(mistral).model.window, 0);
  mistral.erase("sliding_window");  // transformers then uses one
  EXPECT_EQ(read(mistral).model.window, 4096);
  mistral["sliding_window"] = 7;
  EXPECT_EQ(read(mistral).model.window, 7);
}

TEST(HfConfig, TakesNewerNames) {
  Json config = llama_json();
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 2e4}};
  config["dtype"] = "bfloat16";
  config["head_dim"] = 8;
  const spec::ModelConfig model = read(config).model;
  EXPECT_EQ(model.rope_theta, 2e4);
  EXPECT_EQ(model.rope_scaling, spec::RopeScaling{});
  EXPECT_EQ(model.head_dim, 8);
}

TEST(HfConfig, ReadsBiasesOfEitherPart) {
  Json config = llama_json();
  config["attention_bias"] = config["mlp_bias"] = true;
  EXPECT_TRUE(read(config).model.linear_bias);
  config["mlp_bias"] = false;
  const spec::ModelConfig model = read(config).model;
  EXPECT_FALSE(model.linear_bias);
  EXPECT_EQ(model.biases, (spec::ProjectionBiases{true, true, false, false}));
  EXPECT_EQ(hf_config(model, DType::f32, config).at("attention_bias"), true);
}

TEST(HfConfig, RefusesWhatChangesTheArithmetic) {
  const Json llama = llama_json();
  const auto unsupported = [](const Error& error, const std::string& part) {
    return says(error, ErrorKind::unsupported, part);
  };
  EXPECT_TRUE(unsupported(refused(llama, "hidden_act", "gelu"),
                          "config.json: 'hidden_act' is \"gelu\", which Tutti cannot compute; "
                          "accepted: \"silu\", \"swish\""));
  EXPECT_TRUE(unsupported(refused(llama, "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}),
                          "'rope_scaling.type' is \"dynamic\", which Tutti cannot compute; "
                          "accepted: \"default\", \"llama3\", \"linear\", \"yarn\""));
  EXPECT_TRUE(unsupported(refused(llama, "attention_dropout", 0.1), "'attention_dropout' is 0.1"));
  EXPECT_TRUE(
      unsupported(refused(llama, "quantization_config", {{"bits", 4}}), "'quantization_config'"));
  EXPECT_TRUE(unsupported(refused(llama, "partial_rotary_factor", 0.5), "'partial_rotary_factor'"));
  EXPECT_TRUE(unsupported(refused(llama, "rope_parameters", {{"partial_rotary_factor", 0.5}}),
                          "'rope_parameters.partial_rotary_factor' is 0.5"));
  EXPECT_TRUE(unsupported(refused(llama, "model_type", "bloom"),
                          "'model_type' is \"bloom\", which Tutti cannot compute; accepted: gpt2, "
                          "llama, mistral, mixtral, qwen2"));
  EXPECT_TRUE(unsupported(refused(llama, "architectures", {"LlamaForSequenceClassification"}),
                          "accepted: [\"LlamaForCausalLM\"]"));
  EXPECT_TRUE(
      unsupported(refused(mixtral_json(), "sliding_window", 4096), "'sliding_window' is 4096"));
  EXPECT_TRUE(unsupported(refused(mixtral_json(), "router_jitter_noise", 0.1), "router_jitter"));
  const Json gpt2 = gpt2_json();
  EXPECT_TRUE(unsupported(refused(gpt2, "activation_function", "relu"), "'activation_function'"));
  EXPECT_TRUE(unsupported(refused(gpt2, "scale_attn_by_inverse_layer_idx", true),
                          "'scale_attn_by_inverse_layer_idx'"));
}

TEST(HfConfig, ReportsMissingKeysAndWrongTypes) {
  Json config = llama_json();
  config.erase("hidden_size");
  EXPECT_TRUE(says(error_of([&] { read(config); }), ErrorKind::usage,
                   "config.json: key 'hidden_size' is missing"));
  const auto wrong = [](const char* key, const Json& value, const std::string& part) {
    return says(refused(llama_json(), key, value), ErrorKind::usage, part);
  };
  EXPECT_TRUE(wrong("hidden_size", "64", "key 'hidden_size' is \"64\"; expected a whole number"));
  EXPECT_TRUE(wrong("hidden_size", 64.5, "a whole number"));
  EXPECT_TRUE(wrong("hidden_size", true, "a whole number"));
  EXPECT_TRUE(wrong("hidden_size", -64, "a whole number"));
  EXPECT_TRUE(wrong("hidden_size", UINT64_MAX, "a whole number"));
  EXPECT_TRUE(wrong("rms_norm_eps", "tiny", "expected a number"));
  EXPECT_TRUE(wrong("tie_word_embeddings", 1, "true or false"));
  EXPECT_TRUE(wrong("model_type", 7, "expected a string"));
  EXPECT_TRUE(wrong("rope_scaling", 8, "expected an object"));
  EXPECT_TRUE(
      wrong("num_attention_heads", 5, "num_attention_heads 5 does not divide hidden_size 36"));
  EXPECT_TRUE(wrong("num_key_value_heads", 4,
                    "num_key_value_heads 4 does not divide num_attention_heads 6"));
  EXPECT_TRUE(wrong("head_dim", 7, "head_dim: 7 is odd"));
  EXPECT_TRUE(says(error_of([&] { read(Json::array()); }), ErrorKind::usage, "array instead"));
}

TEST(HfConfig, NotesKeysWithoutEffect) {
  Json config = llama_json();
  config["unsloth_fixed"] = true;
  config["nothing"] = nullptr;
  const HfModel hf = read(config);
  ASSERT_EQ(hf.notes.size(), 1U);
  EXPECT_EQ(hf.notes[0], "unsloth_fixed: ignored, model type llama does not have it");
}

TEST(HfConfig, WritingAndReadingRestoresTheModel) {
  Json untied = gpt2_json();
  untied["tie_word_embeddings"] = false;
  untied["n_inner"] = 77;
  Json biased = llama_json();
  biased["attention_bias"] = biased["mlp_bias"] = true;
  Json wide = llama_json();
  wide["head_dim"] = 10;
  for (const Json& config : {llama_json(), gpt2_json(), mixtral_json(), untied, biased, wide}) {
    const HfModel hf = read(config);
    const Json written = hf_config(hf.model, DType::bf16, config);
    const HfModel back = read(written);
    EXPECT_EQ(back.model, hf.model) << written.dump();
    EXPECT_EQ(back.family, hf.family);
    EXPECT_EQ(written.at("torch_dtype"), "bfloat16");
    EXPECT_EQ(written.value("bos_token_id", Json()), config.value("bos_token_id", Json()));
  }
}

// Published config.json files describe the models of recipes/models/.
void expect_preset(const char* config, const std::string& preset) {
  spec::ModelConfig model = read(parse_json(config, "config.json")).model;
  const spec::ModelConfig expected =
      spec::load_model_preset(preset, TUTTI_SOURCE_DIR "/recipes/models");
  model.name = expected.name;
  model.dropout = expected.dropout;  // gpt2 has 0.1
  EXPECT_EQ(spec::to_yaml(model), spec::to_yaml(expected));
}

TEST(HfConfig, PublishedModelsEqualOurPresets) {
  expect_preset(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257})",
                "gpt2-124m");
  expect_preset(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256})",
                "llama3.1-8b");
  expect_preset(R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": true,
    "vocab_size": 32000})",
                "mixtral-8x7b");
}

TEST(HfConfig, RefusesModelsThatTransformersDoesNotHave) {
  const auto refused_model = [](const auto& change) {
    spec::ModelConfig model = read(mixtral_json()).model;
    change(model);
    return error_of([&] { hf_family_of(model); });
  };
  const auto unsupported = [](const Error& error, const std::string& part) {
    return says(error, ErrorKind::unsupported, part);
  };
  EXPECT_TRUE(unsupported(refused_model([](auto& m) { m.norm = spec::Norm::layer; }),
                          "model.norm, model.activation and model.positions"));
  EXPECT_TRUE(unsupported(refused_model([](auto& m) { m.moe.shared_experts = 1; }),
                          "model.moe.shared_experts"));
  EXPECT_TRUE(
      unsupported(refused_model([](auto& m) { m.rope_scaling.factor = 2; }), "model.rope_scaling"));
  EXPECT_TRUE(unsupported(refused_model([](auto& m) { m.prediction_layers = 1; }),
                          "model.prediction_layers: 1"));
  EXPECT_TRUE(unsupported(refused_model([](auto& m) {
                            m.attention = spec::Attention::latent;
                            m.latent.norm_epsilon = 1e-6;
                          }),
                          "model.attention"));
  EXPECT_TRUE(
      unsupported(refused_model([](auto& m) { m.moe.weight_factor = 2; }), "model.moe.scores"));
}

}  // namespace
}  // namespace tutti::checkpoint
