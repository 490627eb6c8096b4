#include "tutti/checkpoint/huggingface/deepseek_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace tutti::checkpoint {
namespace {

using spec::MixtureOfExperts;
using spec::ModelConfig;

double yarn_m(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double plain_scale(const ModelConfig& model) {
  return 1 / std::sqrt(static_cast<double>(spec::key_dim(model)));
}

// From 0 on, which `count` does not accept.
int64_t count_or_zero(HfKeys& keys, const Json& config, const char* key, int64_t fallback) {
  if (keys.has(key) && config.at(key) == 0) return 0;
  return keys.count(key, fallback);
}

// A limit that lets a token choose from all groups is none.
void read_groups(HfKeys& keys, int64_t usual_groups, int64_t usual_chosen, int64_t best,
                 MixtureOfExperts& moe) {
  const int64_t groups = keys.count("n_group", usual_groups);
  const int64_t chosen = keys.count("topk_group", usual_chosen);
  if (groups <= 1 || chosen == groups) return;
  moe.groups = groups;
  moe.top_groups = chosen;
  moe.group_best = best;
}

}  // namespace

bool is_deepseek(HfFamily family) {
  return family == HfFamily::deepseek_v2 || family == HfFamily::deepseek_v3;
}

void read_latent(HfKeys& keys, const Json& config, ModelConfig& model) {
  model.attention = spec::Attention::latent;
  spec::LatentAttention& latent = model.latent;
  // null: queries are not compressed.
  const bool compresses = keys.has("q_lora_rank") || !config.contains("q_lora_rank");
  latent.query_rank = compresses ? keys.count("q_lora_rank", 1536) : 0;
  latent.key_value_rank = keys.count("kv_lora_rank", 512);
  latent.nope_head_dim = keys.count("qk_nope_head_dim", 128);
  latent.rope_head_dim = keys.count("qk_rope_head_dim", 64);
  latent.value_head_dim = keys.count("v_head_dim", 128);
  if (model.norm_epsilon != kLatentEpsilon) latent.norm_epsilon = kLatentEpsilon;
  model.head_dim = latent.nope_head_dim;  // which nothing reads
  keys.know("head_dim");
  keys.know("qk_head_dim");
  keys.only("rope_interleave", {true});
  keys.only("attention_bias", {false});
  keys.only("mlp_bias", {false});
}

void write_latent(const ModelConfig& model, Json& config) {
  const spec::LatentAttention& latent = model.latent;
  config["q_lora_rank"] = latent.query_rank > 0 ? Json(latent.query_rank) : Json(nullptr);
  config["kv_lora_rank"] = latent.key_value_rank;
  config["qk_nope_head_dim"] = latent.nope_head_dim;
  config["qk_rope_head_dim"] = latent.rope_head_dim;
  config["v_head_dim"] = latent.value_head_dim;
  config["head_dim"] = latent.rope_head_dim;  // as transformers has it
  config["rope_interleave"] = true;
  config["attention_bias"] = false;
}

void read_deepseek_experts(HfKeys& keys, const Json& config, HfFamily family, HfModel& out) {
  ModelConfig& model = out.model;
  MixtureOfExperts& moe = model.moe;
  const bool third = family == HfFamily::deepseek_v3;
  moe.experts = keys.count("n_routed_experts", third ? 256 : 64);
  moe.top_k = third ? keys.count("num_experts_per_tok", 8) : keys.count("num_experts_per_tok");
  moe.expert_ffn = keys.count("moe_intermediate_size", third ? 2048 : 1407);
  moe.shared_experts = keys.count("n_shared_experts", third ? 1 : 2);
  moe.first_dense_layers = count_or_zero(keys, config, "first_k_dense_replace", third ? 3 : 0);
  moe.weight_factor = keys.real("routed_scaling_factor", third ? 2.5 : 1);
  keys.only("moe_layer_freq", {1});
  if (third) {
    keys.only("scoring_func", {"sigmoid"});
    keys.only("topk_method", {"noaux_tc"});
    moe.scores = spec::RouterScores::sigmoid;
    moe.router_bias = true;
    moe.renormalize = keys.flag("norm_topk_prob", true);
    read_groups(keys, 8, 4, 2, moe);
  } else {
    keys.only("scoring_func", {"softmax"});
    keys.only("topk_method", {"greedy", "group_limited_greedy"});
    // transformers does not look at it, DeepSeek's own code divides by the sum.
    keys.only("norm_topk_prob", {false});
    moe.renormalize = false;
    if (keys.text("topk_method", "greedy") == "group_limited_greedy") {
      read_groups(keys, 1, 1, 1, moe);
    }
    keys.know("n_group");
    keys.know("topk_group");
  }
  if (keys.has("aux_loss_alpha") && keys.real("aux_loss_alpha") != 0) {
    out.notes.push_back(fmt::format(
        "aux_loss_alpha {}: left out; it acts in training only (model.moe.balance_loss)",
        keys.real("aux_loss_alpha")));
  }
  for (const char* key : {"seq_aux", "ep_size"}) keys.know(key);
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"}) {
    const int64_t layers = count_or_zero(keys, config, key, 0);
    if (layers == 0) continue;
    out.left_out_layers = layers;
    out.notes.push_back(fmt::format(
        "{} {}: what predicts further tokens is left out, where the files have it", key, layers));
  }
}

void write_deepseek_experts(const ModelConfig& model, HfFamily family, Json& config) {
  const MixtureOfExperts& moe = model.moe;
  const bool third = family == HfFamily::deepseek_v3;
  const bool limited = moe.groups > 1;
  config["n_routed_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.top_k;
  config["moe_intermediate_size"] = moe.expert_ffn;
  config["n_shared_experts"] = moe.shared_experts;
  config["first_k_dense_replace"] = moe.first_dense_layers;
  config["routed_scaling_factor"] = moe.weight_factor;
  config["norm_topk_prob"] = moe.renormalize;
  config["moe_layer_freq"] = 1;
  config["n_group"] = moe.groups;
  config["topk_group"] = moe.top_groups;
  config["scoring_func"] = third ? "sigmoid" : "softmax";
  config["topk_method"] = third ? "noaux_tc" : limited ? "group_limited_greedy" : "greedy";
  if (third) config["num_nextn_predict_layers"] = 0;
}

void read_mscale(HfKeys& keys, ModelConfig& model) {
  spec::RopeScaling& scaling = model.rope_scaling;
  const double mscale = keys.real("mscale", 0);
  const double all = keys.real("mscale_all_dim", 0);
  if (scaling.amplitude == 0 && mscale != 0 && all != 0) {
    scaling.amplitude = yarn_m(scaling.factor, mscale) / yarn_m(scaling.factor, all);
  }
  if (all == 0) return;
  const double m = yarn_m(scaling.factor, all);
  model.attention_scale = plain_scale(model) * m * m;
}

void write_mscale(const ModelConfig& model, Json& scaling) {
  const double factor = model.rope_scaling.factor;
  if (model.attention_scale == 0 || factor <= 1) return;
  const double m = std::sqrt(model.attention_scale / plain_scale(model));
  double all = (m - 1) / (0.1 * std::log(factor));
  // A number as people write it, where it is one.
  constexpr double kDigits = 1e9;
  const double rounded = std::round(all * kDigits) / kDigits;
  if (std::abs(rounded - all) <= 1e-12 * std::abs(all)) all = rounded;
  scaling["mscale_all_dim"] = all;
  if (model.rope_scaling.amplitude == 1) {  // as DeepSeek says it
    scaling["mscale"] = all;
    scaling.erase("attention_factor");
  }
}

}  // namespace tutti::checkpoint
