#include "tutti/checkpoint/huggingface/names.h"

#include <gtest/gtest.h>

#include <set>

#include "tutti/checkpoint/testing/hf_fixture.h"
#include "tutti/spec/model/params.h"

namespace tutti::checkpoint {
namespace {

std::vector<HfParameter> parameters_of(const Json& config) {
  const HfModel hf = read_hf_config(config, "config.json");
  return hf_parameters(hf.model, hf.family, hf_prefix(hf.family));
}

const HfParameter& find(const std::vector<HfParameter>& parameters, const std::string& name) {
  for (const HfParameter& parameter : parameters) {
    if (parameter.name == name) return parameter;
  }
  ADD_FAILURE() << "no parameter " << name;
  return parameters.front();
}

std::string show(const HfParameter& parameter) {
  std::string text;
  for (const HfPart& part : parameter.parts) {
    text += fmt::format("{}{}{}{} ", part.name, format_shape(part.shape),
                        part.transposed ? "T" : "", part.rotary ? "R" : "");
  }
  return text;
}

TEST(HfNames, Llama) {
  const auto parameters = parameters_of(llama_json());
  EXPECT_EQ(show(find(parameters, "embedding.token.weight")), "model.embed_tokens.weight[37, 36] ");
  EXPECT_EQ(show(find(parameters, "blocks.1.attention.qkv.weight")),
            "model.layers.1.self_attn.q_proj.weight[36, 36]R "
            "model.layers.1.self_attn.k_proj.weight[12, 36]R "
            "model.layers.1.self_attn.v_proj.weight[12, 36] ");
  EXPECT_EQ(show(find(parameters, "blocks.0.mlp.gate_up.weight")),
            "model.layers.0.mlp.gate_proj.weight[50, 36] "
            "model.layers.0.mlp.up_proj.weight[50, 36] ");
  EXPECT_EQ(show(find(parameters, "blocks.0.norm2.weight")),
            "model.layers.0.post_attention_layernorm.weight[36] ");
  EXPECT_EQ(show(find(parameters, "head.weight")), "lm_head.weight[37, 36] ");
}

TEST(HfNames, Gpt2) {
  const auto parameters = parameters_of(gpt2_json());
  EXPECT_EQ(show(find(parameters, "blocks.1.attention.qkv.weight")),
            "transformer.h.1.attn.c_attn.weight[30, 90]T ");
  EXPECT_EQ(show(find(parameters, "blocks.1.attention.qkv.bias")),
            "transformer.h.1.attn.c_attn.bias[90] ");
  EXPECT_EQ(show(find(parameters, "blocks.0.mlp.down.weight")),
            "transformer.h.0.mlp.c_proj.weight[120, 30]T ");
  EXPECT_EQ(show(find(parameters, "embedding.position.weight")), "transformer.wpe.weight[24, 30] ");
  EXPECT_EQ(show(find(parameters, "final_norm.bias")), "transformer.ln_f.bias[30] ");
}

TEST(HfNames, MixtralExpertsAreGateThenUp) {
  const auto parameters = parameters_of(mixtral_json());
  const std::string moe = "model.layers.1.block_sparse_moe.";
  EXPECT_EQ(show(find(parameters, "blocks.1.moe.router.weight")), moe + "gate.weight[3, 36] ");
  std::string gate_up;
  std::string down;
  for (const char* expert : {"0", "1", "2"}) {
    gate_up += moe + "experts." + expert + ".w1.weight[50, 36] ";
    gate_up += moe + "experts." + expert + ".w3.weight[50, 36] ";
    down += moe + "experts." + expert + ".w2.weight[36, 50] ";
  }
  EXPECT_EQ(show(find(parameters, "blocks.1.moe.experts.gate_up.weight")), gate_up);
  EXPECT_EQ(show(find(parameters, "blocks.1.moe.experts.down.weight")), down);
}

// The parts of a parameter together have its number of elements, every name occurs once, and all
// parameters of the model are named.
TEST(HfNames, AreAPartition) {
  Json biased = llama_json();
  biased["attention_bias"] = biased["mlp_bias"] = true;
  Json tied = llama_json();
  tied["tie_word_embeddings"] = true;
  for (const Json& config : {llama_json(), biased, tied, gpt2_json(), mixtral_json()}) {
    const HfModel hf = read_hf_config(config, "config.json");
    std::set<std::string> names;
    std::set<std::string> ours;
    for (const HfParameter& parameter : parameters_of(config)) {
      int64_t elements = 0;
      for (const HfPart& part : parameter.parts) {
        EXPECT_TRUE(names.insert(part.name).second) << part.name;
        elements += checked_bytes(DType::u8, part.shape);
      }
      EXPECT_EQ(elements, checked_bytes(DType::u8, parameter.shape)) << parameter.name;
      ours.insert(parameter.name);
    }
    std::set<std::string> expected;
    for (const auto& placed : spec::param_layout(spec::param_table(hf.model)).params) {
      expected.insert(placed.name);
    }
    EXPECT_EQ(ours, expected);
  }
}

TEST(HfNames, Gpt2WithoutBiasesHasZeroBiases) {
  HfModel hf = read_hf_config(gpt2_json(), "config.json");
  hf.model.linear_bias = hf.model.norm_bias = false;
  size_t zeros = 0;
  for (const HfParameter& parameter : hf_parameters(hf.model, hf.family, "transformer.")) {
    if (!parameter.name.empty()) continue;
    ++zeros;
    EXPECT_TRUE(parameter.parts.front().name.ends_with(".bias"));
  }
  EXPECT_EQ(zeros, 2U * 6 + 1);
}

}  // namespace
}  // namespace tutti::checkpoint
