// Every key of a model, once (spec/recipe/keys.h says how such a list is used).
#pragma once

#include <array>
#include <cstdint>

#include "tutti/spec/model/config.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::spec {

// The whole numbers that a key accepts.
struct Accepted {
  int64_t least = 0;
  int64_t most = INT64_MAX;
};

// A flag and the name under which a list holds it; Bool is bool or const bool.
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
  v.real("factor", scaling.factor, "how much longer than original_context; 1: not at all");
  v.real("low_frequency_factor", scaling.low_frequency_factor, "of kind llama3");
  v.real("high_frequency_factor", scaling.high_frequency_factor, "of kind llama3");
  v.count("original_context", scaling.original_context, {1}, "context of pre-training, tokens");
  v.when(scaling.kind != RopeScalingKind::llama3)
      .choice("kind", scaling.kind, kRopeScalingNames, "how frequencies are scaled");
  v.when(is_yarn).real("fast_turns", scaling.fast_turns, "yarn: faster ones stay (beta_fast)");
  v.when(is_yarn).real("slow_turns", scaling.slow_turns,
                       "yarn: slower ones are divided by the factor (beta_slow)");
  v.when(is_yarn)
      .usually("0.1 ln(factor) + 1")
      .real("amplitude", scaling.amplitude, "yarn: of queries and keys");
  v.when(!scaling.rounded)
      .flag("rounded", scaling.rounded, "yarn: bounds of the turns are whole pairs");
}

template <typename Visitor, typename Model>
void latent_keys(Visitor& v, Model& model) {
  auto& latent = model.latent;
  v.count("query_rank", latent.query_rank, {}, "of compressed queries; 0: not compressed");
  v.count("key_value_rank", latent.key_value_rank, {}, "of compressed keys and values");
  v.count("nope_head_dim", latent.nope_head_dim, {}, "columns of a head without rotation");
  v.count("rope_head_dim", latent.rope_head_dim, {}, "columns of a head that rotate");
  v.count("value_head_dim", latent.value_head_dim, {}, "columns of a value");
}

template <typename Visitor, typename Model>
void moe_keys(Visitor& v, Model& model) {
  auto& moe = model.moe;
  v.count("experts", moe.experts, {}, "routed experts of a layer; 0: a dense model");
  v.count("top_k", moe.top_k, {}, "experts of a token");
  v.count("expert_ffn", moe.expert_ffn, {}, "width of an expert");
  v.count("shared_experts", moe.shared_experts, {}, "experts that every token passes");
  v.count("first_dense_layers", moe.first_dense_layers, {}, "first layers without experts");
  v.real("capacity_factor", moe.capacity_factor,
         "share of the mean load that an expert takes; 0: all that is sent to it");
  v.real("balance_loss", moe.balance_loss, "weight of the load balancing loss");
  v.real("z_loss", moe.z_loss, "weight of the router's z-loss");
  v.flag("router_bias", moe.router_bias, "a selection bias per expert (DeepSeek-V3)");
  v.real("router_bias_rate", moe.router_bias_rate, "its change per step");
  v.when(!moe.renormalize)
      .flag("renormalize", moe.renormalize, "weights of a token's experts are over their sum");
  v.when(moe.biases).flag("biases", moe.biases, "of the router's logits and of experts");
}

// Parts that not every model has, written where they are not the default.
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
  real("norm_offset", model.norm_offset, plain.norm_offset, "added to the weights of norms");
  v.when(model.query_key_norm != plain.query_key_norm)
      .choice("query_key_norm", model.query_key_norm, kQueryKeyNormNames,
              "RMSNorm of queries and keys, of each head or of the whole");
  v.when(model.attention_scale != plain.attention_scale)
      .usually("1 / sqrt(head_dim)")
      .real("attention_scale", model.attention_scale, "of attention's scores");
  v.when(model.attention_sinks)
      .flag("attention_sinks", model.attention_sinks, "a score per head without a value");
  real("attention_softcap", model.attention_softcap, plain.attention_softcap,
       "scores become cap * tanh(score / cap); 0: they stay");
  real("logit_softcap", model.logit_softcap, plain.logit_softcap, "the same of the logits");
  real("embedding_multiplier", model.embedding_multiplier, plain.embedding_multiplier,
       "of the embedding's output");
  real("residual_multiplier", model.residual_multiplier, plain.residual_multiplier,
       "of what attention and MLP add to the residual");
  real("logit_divisor", model.logit_divisor, plain.logit_divisor, "of the logits");
  v.when(model.window != 0)
      .count("window", model.window, {},
             "tokens that a token sees, itself included; 0: all before it");
  v.when(!model.global_layers.empty())
      .counts("global_layers", model.global_layers, "layers without the window, from 0");
  v.when(model.window_rope_theta != plain.window_rope_theta)
      .usually("model.rope_theta")
      .real("window_rope_theta", model.window_rope_theta, "of layers with the window");
  v.when(model.rotated_dims != 0)
      .usually("model.head_dim")
      .count("rotated_dims", model.rotated_dims, {}, "first columns of a head that rotate");
  v.when(!model.unrotated_layers.empty())
      .counts("unrotated_layers", model.unrotated_layers, "layers without rotation, from 0");
}

template <typename Visitor, typename Model>
void model_keys(Visitor& v, Model& model) {
  v.text("name", model.name, "for people");
  v.usually("required").count("layers", model.layers, {1}, "blocks");
  v.usually("required").count("hidden", model.hidden, {1}, "width of the residual stream");
  v.usually("required").count("heads", model.heads, {1}, "attention heads");
  v.usually("model.heads").count("kv_heads", model.kv_heads, {1}, "heads of keys and values");
  v.usually("hidden / heads").count("head_dim", model.head_dim, {1}, "columns of a head");
  v.usually("4 * hidden with gelu").count("ffn", model.ffn, {1}, "width of the MLP");
  v.usually("required").count("vocabulary", model.vocabulary, {1}, "tokens");
  v.usually("required").count("context", model.context, {1}, "longest sequence, tokens");
  v.choice("norm", model.norm, kNormNames, "LayerNorm or RMSNorm");
  v.real("norm_epsilon", model.norm_epsilon, "of both");
  v.choice("activation", model.activation, kActivationNames, "of the MLP");
  v.choice("positions", model.positions, kPositionsNames, "a table, or rotation");
  v.choice("attention", model.attention, kAttentionNames, "latent: DeepSeek's MLA");
  v.flag("linear_bias", model.linear_bias, "of every projection of a block");
  v.usually("true with layer").flag("norm_bias", model.norm_bias, "of norms");
  v.flag("tied_embeddings", model.tied_embeddings, "the head is the embedding");
  v.real("rope_theta", model.rope_theta, "base of the rotation's wavelengths");
  v.section(
      "rope_scaling", [&](auto& inner) { rope_scaling_keys(inner, model); },
      "rotation beyond the context of pre-training");
  v.real("init_std", model.init_std, "standard deviation of initial weights");
  v.real("dropout", model.dropout, "of the embedding and of both branches of a layer");
  v.section(
      "latent", [&](auto& inner) { latent_keys(inner, model); }, "with attention: latent");
  v.section(
      "moe", [&](auto& inner) { moe_keys(inner, model); }, "mixture of experts");
  v.count("prediction_layers", model.prediction_layers, {},
          "multi-token prediction modules; described and priced, not executed");
  model_part_keys(v, model);
}

}  // namespace tutti::spec
