// The list of all keys of a model; spec/recipe/keys.h explains such lists.
#pragma once

#include <array>
#include <cstdint>

#include "tutti/spec/model/config.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::spec {

// The range of integers that a key accepts.
struct Accepted {
  int64_t least = 0;
  int64_t most = INT64_MAX;
};

// A flag and its name in a list; Bool is bool or const bool.
template <typename Bool>
struct NamedFlag {
  const char* name;
  Bool* value;
};
template <typename Bool>
NamedFlag(const char*, Bool*) -> NamedFlag<Bool>;

// `Model` is ModelConfig or const ModelConfig.
template <typename Visitor, typename Model>
void rope_scaling_keys(Visitor& v, Model& model) {
  auto& scaling = model.rope_scaling;
  const bool is_yarn = scaling.kind == RopeScalingKind::yarn;
  v.real("factor", scaling.factor, "extension of original_context; 1: none");
  v.real("low_frequency_factor", scaling.low_frequency_factor, "kind llama3 only");
  v.real("high_frequency_factor", scaling.high_frequency_factor, "kind llama3 only");
  v.count("original_context", scaling.original_context, {1}, "context of pre-training, tokens");
  v.when(scaling.kind != RopeScalingKind::llama3)
      .choice("kind", scaling.kind, kRopeScalingNames, "how frequencies are scaled");
  v.when(is_yarn).real("fast_turns", scaling.fast_turns,
                       "yarn: faster frequencies are kept (beta_fast)");
  v.when(is_yarn).real("slow_turns", scaling.slow_turns,
                       "yarn: slower frequencies are divided by the factor (beta_slow)");
  v.when(is_yarn)
      .usually("0.1 ln(factor) + 1")
      .real("amplitude", scaling.amplitude, "yarn: multiplier of queries and keys");
  v.when(!scaling.rounded)
      .flag("rounded", scaling.rounded, "yarn: round the bounds of the blend to whole pairs");
}

template <typename Visitor, typename Model>
void latent_keys(Visitor& v, Model& model) {
  auto& latent = model.latent;
  v.count("query_rank", latent.query_rank, {}, "rank of compressed queries; 0: not compressed");
  v.count("key_value_rank", latent.key_value_rank, {}, "rank of compressed keys and values");
  v.count("nope_head_dim", latent.nope_head_dim, {}, "columns of a head without RoPE");
  v.count("rope_head_dim", latent.rope_head_dim, {}, "columns of a head with RoPE");
  v.count("value_head_dim", latent.value_head_dim, {}, "columns of a value head");
  v.when(latent.norm_epsilon != 0)
      .usually("model.norm_epsilon")
      .real("norm_epsilon", latent.norm_epsilon,
            "epsilon of the norms of compressed queries, keys and values");
}

template <typename Visitor, typename Model>
void moe_keys(Visitor& v, Model& model) {
  auto& moe = model.moe;
  v.count("experts", moe.experts, {}, "routed experts of a layer; 0: a dense model");
  v.count("top_k", moe.top_k, {}, "experts per token");
  v.count("expert_ffn", moe.expert_ffn, {}, "FFN width of an expert");
  v.count("shared_experts", moe.shared_experts, {}, "experts that process every token");
  v.count("first_dense_layers", moe.first_dense_layers, {}, "leading layers without experts");
  v.real("capacity_factor", moe.capacity_factor,
         "capacity of an expert over the mean load; 0: unlimited");
  v.real("balance_loss", moe.balance_loss, "weight of the load balancing loss");
  v.real("z_loss", moe.z_loss, "weight of the router's z-loss");
  v.flag("router_bias", moe.router_bias, "a selection bias per expert (DeepSeek-V3)");
  v.real("router_bias_rate", moe.router_bias_rate, "update of the selection bias per step");
  v.when(!moe.renormalize)
      .flag("renormalize", moe.renormalize, "divide the weights of a token's experts by their sum");
  v.when(moe.biases)
      .flag("biases", moe.biases, "biases of the router and of the experts' projections");
  v.when(moe.scores != RouterScores::softmax)
      .choice("scores", moe.scores, kRouterScoresNames,
              "scores of experts: over all, or of each alone");
  v.when(moe.groups != 1)
      .count("groups", moe.groups, {1},
             "groups of consecutive experts; a token first selects groups");
  v.when(moe.top_groups != 1)
      .count("top_groups", moe.top_groups, {1}, "groups that a token selects its experts from");
  v.when(moe.group_best != 1)
      .count("group_best", moe.group_best, {1}, "scores of a group whose sum ranks it");
  v.when(moe.weight_factor != 1)
      .real("weight_factor", moe.weight_factor, "factor of the weights of a token's experts");
}

// Optional parts of a model, written only where they differ from the default.
template <typename Visitor, typename Model>
void model_part_keys(Visitor& v, Model& model) {
  const ModelConfig plain;
  const auto real = [&](const char* key, auto& x, double usual, const char* help) {
    v.when(x != usual).real(key, x, help);
  };
  const auto& biases = model.biases;
  v.when(biases.qkv || biases.output || biases.up || biases.down)
      .flags(
          "biases",
          std::array{NamedFlag{"qkv", &model.biases.qkv}, NamedFlag{"output", &model.biases.output},
                     NamedFlag{"up", &model.biases.up}, NamedFlag{"down", &model.biases.down}},
          "projections with a bias where linear_bias is false");
  v.when(model.norm_placement != plain.norm_placement)
      .choice("norm_placement", model.norm_placement, kNormPlacementNames,
              "norms before attention and MLP, after them, or both");
  real("norm_offset", model.norm_offset, plain.norm_offset, "added to the weights of all norms");
  v.when(model.query_key_norm != plain.query_key_norm)
      .choice("query_key_norm", model.query_key_norm, kQueryKeyNormNames,
              "RMSNorm of queries and keys, per head or over all heads");
  v.when(model.attention_scale != plain.attention_scale)
      .usually("1 / sqrt(columns of a key)")
      .real("attention_scale", model.attention_scale, "multiplier of attention scores");
  v.when(model.attention_sinks)
      .flag("attention_sinks", model.attention_sinks,
            "learned softmax logit per head, without a value");
  real("attention_softcap", model.attention_softcap, plain.attention_softcap,
       "attention scores become cap * tanh(score / cap); 0: off");
  real("logit_softcap", model.logit_softcap, plain.logit_softcap, "the same for the logits");
  real("embedding_multiplier", model.embedding_multiplier, plain.embedding_multiplier,
       "multiplier of the embedding's output");
  real("residual_multiplier", model.residual_multiplier, plain.residual_multiplier,
       "multiplier of what attention and MLP add to the residual");
  real("logit_divisor", model.logit_divisor, plain.logit_divisor, "divisor of the logits");
  v.when(model.window != 0)
      .count("window", model.window, {},
             "sliding window: tokens that a token attends to, itself included; 0: off");
  v.when(!model.global_layers.empty())
      .counts("global_layers", model.global_layers, "layers without the window, from 0");
  v.when(model.window_rope_theta != plain.window_rope_theta)
      .usually("model.rope_theta")
      .real("window_rope_theta", model.window_rope_theta, "RoPE base of layers with the window");
  v.when(model.rotated_dims != 0)
      .usually("model.head_dim")
      .count("rotated_dims", model.rotated_dims, {}, "leading columns of a head with RoPE");
  v.when(!model.unrotated_layers.empty())
      .counts("unrotated_layers", model.unrotated_layers, "layers without RoPE, from 0");
}

template <typename Visitor, typename Model>
void model_keys(Visitor& v, Model& model) {
  v.text("name", model.name, "display name");
  v.usually("required").count("layers", model.layers, {1}, "blocks");
  v.usually("required").count("hidden", model.hidden, {1}, "width of the residual stream");
  v.usually("required").count("heads", model.heads, {1}, "attention heads");
  v.usually("model.heads").count("kv_heads", model.kv_heads, {1}, "key/value heads");
  v.usually("hidden / heads").count("head_dim", model.head_dim, {1}, "columns of a head");
  v.usually("4 * hidden with gelu").count("ffn", model.ffn, {1}, "width of the MLP");
  v.usually("required").count("vocabulary", model.vocabulary, {1}, "vocabulary size, tokens");
  v.usually("required").count("context", model.context, {1}, "longest sequence, tokens");
  v.choice("norm", model.norm, kNormNames, "LayerNorm or RMSNorm");
  v.real("norm_epsilon", model.norm_epsilon, "epsilon of the norms");
  v.choice("activation", model.activation, kActivationNames, "activation of the MLP");
  v.choice("positions", model.positions, kPositionsNames, "learned table, or RoPE");
  v.choice("attention", model.attention, kAttentionNames, "latent: DeepSeek's MLA");
  v.flag("linear_bias", model.linear_bias, "biases of all projections of a block");
  v.usually("true with layer").flag("norm_bias", model.norm_bias, "biases of norms");
  v.flag("tied_embeddings", model.tied_embeddings, "the head shares the embedding's table");
  v.real("rope_theta", model.rope_theta, "base of the RoPE frequencies");
  v.section(
      "rope_scaling", [&](auto& inner) { rope_scaling_keys(inner, model); },
      "RoPE beyond the context of pre-training");
  v.real("init_std", model.init_std, "standard deviation of initial weights");
  v.real("dropout", model.dropout, "dropout of the embedding and of both residual branches");
  v.section(
      "latent", [&](auto& inner) { latent_keys(inner, model); }, "sizes of latent attention");
  v.section(
      "moe", [&](auto& inner) { moe_keys(inner, model); }, "mixture of experts");
  v.count("prediction_layers", model.prediction_layers, {},
          "multi-token prediction modules: planned, not executed");
  model_part_keys(v, model);
}

}  // namespace tutti::spec
