#include "tutti/checkpoint/huggingface/expert_keys.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::checkpoint {
namespace {

using spec::MixtureOfExperts;
using spec::ModelConfig;

// Qwen3: dense are the layers of mlp_only_layers, and those whose number, counted from 1,
// decoder_sparse_step does not divide. In Tutti all dense layers precede the others.
int64_t first_dense_layers(HfKeys& keys, const Json& config, int64_t layers) {
  const int64_t step = keys.count("decoder_sparse_step", 1);
  std::vector<bool> dense(static_cast<size_t>(layers));
  for (int64_t i = 0; i < layers; ++i) dense[static_cast<size_t>(i)] = (i + 1) % step != 0;
  if (keys.has("mlp_only_layers")) {
    const char* const accepted = "a list of the first layers, or of none";
    const Json& list = config.at("mlp_only_layers");
    if (!list.is_array()) keys.refuse("mlp_only_layers", accepted);
    for (const Json& layer : list) {
      if (!layer.is_number_integer()) keys.refuse("mlp_only_layers", accepted);
      const auto number = layer.get<int64_t>();
      if (number >= 0 && number < layers) dense[static_cast<size_t>(number)] = true;
    }
  }
  const auto first = std::find(dense.begin(), dense.end(), false);
  if (first == dense.end() || std::find(first, dense.end(), true) != dense.end()) {
    if (step != 1) keys.refuse("decoder_sparse_step", "1");
    keys.refuse("mlp_only_layers", "the first layers, or none");
  }
  return first - dense.begin();
}

void read_gpt_oss(HfKeys& keys, ModelConfig& model) {
  MixtureOfExperts& moe = model.moe;
  moe.experts = keys.count("num_local_experts", 128);
  moe.top_k = keys.count("num_experts_per_tok", 4);
  moe.expert_ffn = model.ffn;
  moe.balance_loss = keys.real("router_aux_loss_coef", 0.001);
  moe.biases = true;
  keys.only("swiglu_alpha", {1.702});
  keys.only("swiglu_limit", {7.0});
}

void write_gpt_oss(const MixtureOfExperts& moe, Json& config) {
  config["num_local_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.top_k;
  config["intermediate_size"] = moe.expert_ffn;
  config["router_aux_loss_coef"] = moe.balance_loss;
  config["swiglu_alpha"] = 1.702;
  config["swiglu_limit"] = 7.0;
}

}  // namespace

void read_experts(HfKeys& keys, const Json& config, HfFamily family, ModelConfig& model) {
  if (family == HfFamily::gpt_oss) return read_gpt_oss(keys, model);
  const bool qwen = family == HfFamily::qwen3_moe;
  MixtureOfExperts& moe = model.moe;
  // transformers has two names for it, and writes either.
  moe.experts = keys.count("num_experts", keys.count("num_local_experts", qwen ? 128 : 64));
  moe.top_k = keys.count("num_experts_per_tok", 8);
  moe.renormalize = keys.flag("norm_topk_prob", false);
  moe.balance_loss = keys.real("router_aux_loss_coef", qwen ? 0.001 : 0.01);
  if (qwen) {
    moe.expert_ffn = keys.count("moe_intermediate_size", 768);
    moe.first_dense_layers = first_dense_layers(keys, config, model.layers);
    return;
  }
  moe.expert_ffn = model.ffn;
  keys.only("clip_qkv", {}, "none: queries, keys and values are not clipped");
}

void write_experts(const ModelConfig& model, HfFamily family, Json& config) {
  const MixtureOfExperts& moe = model.moe;
  if (family == HfFamily::gpt_oss) return write_gpt_oss(moe, config);
  config["num_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.top_k;
  config["norm_topk_prob"] = moe.renormalize;
  config["router_aux_loss_coef"] = moe.balance_loss;
  if (family != HfFamily::qwen3_moe) {
    config["intermediate_size"] = moe.expert_ffn;
    config["clip_qkv"] = nullptr;
    return;
  }
  config["moe_intermediate_size"] = moe.expert_ffn;
  config["decoder_sparse_step"] = 1;
  Json dense = Json::array();
  for (int64_t i = 0; i < moe.first_dense_layers; ++i) dense.push_back(i);
  config["mlp_only_layers"] = std::move(dense);
}

}  // namespace tutti::checkpoint
