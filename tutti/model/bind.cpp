#include "tutti/model/bind.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/model/rope_frequency.h"
#include "tutti/model/tensor_parallel.h"

namespace tutti::model {
namespace {

engine::Activation activation_of(const spec::ModelConfig& model) {
  switch (model.activation) {
    case spec::Activation::gelu: return engine::Activation::gelu;
    case spec::Activation::swiglu: return engine::Activation::swiglu;
    case spec::Activation::geglu: return engine::Activation::geglu;
    case spec::Activation::clamped_swiglu: return engine::Activation::clamped_swiglu;
  }
  return engine::Activation::gelu;
}

MlpLayer bind_mlp(const spec::ModelConfig& model, const Parameters& parameters,
                  const std::string& name) {
  const bool gelu = model.activation == spec::Activation::gelu;
  return {activation_of(model), parameters.linear(name + (gelu ? ".up" : ".gate_up")),
          parameters.linear(name + ".down")};
}

// A weight whose name.bias, if it exists, is not added to the product.
Linear bind_weight(const Parameters& parameters, const std::string& name) {
  Linear out;
  out.weight = parameters.weight(name + ".weight");
  out.packed = parameters.packed(name + ".weight");
  out.d_weight = parameters.gradient(name + ".weight");
  return out;
}

engine::RouterScores scores_of(const spec::MixtureOfExperts& moe) {
  return moe.scores == spec::RouterScores::sigmoid ? engine::RouterScores::sigmoid
                                                   : engine::RouterScores::softmax;
}

MoeLayer bind_moe(const spec::ModelConfig& model, const Parameters& parameters,
                  const std::string& name) {
  const bool gelu = model.activation == spec::Activation::gelu;
  const auto layers = static_cast<double>(model.layers - model.moe.first_dense_layers);
  MoeLayer out;
  out.config = model.moe;
  out.activation = activation_of(model);
  const auto projection = [&](const std::string& part) {
    return model.moe.biases ? parameters.linear(name + part) : bind_weight(parameters, name + part);
  };
  out.router = projection(".router");
  if (model.moe.router_bias) {
    const engine::Matrix bias = parameters.weight(name + ".router.bias");
    out.selection_bias = engine::vector(bias.data, bias.dtype, bias.rows);
  }
  out.scores = scores_of(model.moe);
  out.groups = {model.moe.groups, model.moe.top_groups, model.moe.group_best};
  out.up = projection(gelu ? ".experts.up" : ".experts.gate_up");
  out.down = projection(".experts.down");
  if (model.moe.shared_experts > 0) out.shared = bind_mlp(model, parameters, name + ".shared");
  out.balance_loss = static_cast<float>(model.moe.balance_loss / layers);
  out.z_loss = static_cast<float>(model.moe.z_loss / layers);
  return out;
}

// The norm `name` of a block, or an identity.
NormLayer bind_norm(const spec::ModelConfig& model, const Parameters& parameters,
                    const std::string& name) {
  return make_norm(model, parameters.has(name + ".weight") ? parameters.norm(name) : NormWeights{});
}

void bind_attention_parts(const spec::ModelConfig& model, const Parameters& parameters,
                          int64_t layer, const RopeFrequencies& frequencies, int64_t sequence,
                          const std::string& prefix, AttentionLayer& out) {
  out.scale = static_cast<float>(model.attention_scale);
  out.softcap = static_cast<float>(model.attention_softcap);
  out.windowed = spec::window_of(model, layer, sequence) > 0;
  if (spec::is_rotated(model, layer)) {
    const bool window = spec::has_window_rope(model, layer);
    out.rope_frequency = window ? frequencies.window : frequencies.all;
    out.rotated = spec::rotated_dims(model);
    out.rope_amplitude = rope_amplitude(model, window);
  }
  if (model.attention_sinks) {
    const NormWeights sinks = parameters.norm(prefix + "attention.sinks");
    out.sinks = sinks.weight;
    out.d_sinks = sinks.d_weight;
  }
  if (model.query_key_norm == spec::QueryKeyNorm::none) return;
  out.norms = {parameters.norm(prefix + "attention.query_norm"),
               parameters.norm(prefix + "attention.key_norm"),
               static_cast<float>(model.norm_epsilon), static_cast<float>(model.norm_offset)};
}

void bind_projections(const spec::ModelConfig& model, const Parameters& parameters,
                      const std::string& prefix, AttentionLayer& out) {
  if (model.attention == spec::Attention::grouped) {
    out.qkv = parameters.linear(prefix + "attention.qkv");
    // On this rank: query heads are divided evenly, key/value heads may be replicated.
    out.heads = out.output.weight.cols / model.head_dim;
    out.kv_heads = (out.qkv.weight.rows / model.head_dim - out.heads) / 2;
    return;
  }
  const spec::LatentAttention& sizes = model.latent;
  LatentLayer& latent = out.latent;
  latent.rank = sizes.key_value_rank;
  latent.rope_dim = sizes.rope_head_dim;
  latent.nope_dim = sizes.nope_head_dim;
  latent.value_dim = sizes.value_head_dim;
  latent.epsilon =
      static_cast<float>(sizes.norm_epsilon > 0 ? sizes.norm_epsilon : model.norm_epsilon);
  latent.offset = static_cast<float>(model.norm_offset);
  if (sizes.query_rank > 0) {
    latent.query_down = parameters.linear(prefix + "attention.query_down");
    latent.query_norm = parameters.norm(prefix + "attention.query_norm");
    latent.query = parameters.linear(prefix + "attention.query_up");
  } else {
    latent.query = parameters.linear(prefix + "attention.query");
  }
  latent.kv_down = parameters.linear(prefix + "attention.kv_down");
  latent.kv_norm = parameters.norm(prefix + "attention.kv_norm");
  latent.kv_up = parameters.linear(prefix + "attention.kv_up");
  out.heads = out.kv_heads = out.output.weight.cols / sizes.value_head_dim;
}

}  // namespace

Embedding bind_embedding(const spec::ModelConfig& model, const Parameters& parameters,
                         const Groups& groups) {
  Embedding out;
  out.tp = groups.tp;
  out.multiplier = static_cast<float>(model.embedding_multiplier);
  out.token = parameters.weight("embedding.token.weight");
  out.packed = parameters.packed("embedding.token.weight");
  out.d_token = parameters.gradient("embedding.token.weight");
  if (parameters.has("embedding.position.weight")) {
    out.position = parameters.weight("embedding.position.weight");
    out.d_position = parameters.gradient("embedding.position.weight");
  }
  if (out.tp != nullptr) {
    out.first_token = out.tp->rank() * out.token.rows;
    out.vocabulary = model.vocabulary;
  }
  return out;
}

BlockLayer bind_block(const spec::ModelConfig& model, const Parameters& parameters, int64_t layer,
                      const RopeFrequencies& frequencies, int64_t sequence, uint64_t seed,
                      const Groups& groups) {
  const std::string prefix = "blocks." + std::to_string(layer) + ".";
  BlockLayer out;
  out.norm1 = bind_norm(model, parameters, prefix + "norm1");
  out.attention_norm = bind_norm(model, parameters, prefix + "attention.branch_norm");
  out.mlp_norm = bind_norm(model, parameters, prefix + "mlp.branch_norm");
  out.residual_multiplier = static_cast<float>(model.residual_multiplier);
  out.tp = groups.tp;
  out.attention.output = parameters.linear(prefix + "attention.output");
  out.attention.output.summed_over = groups.tp;
  out.attention.head_dim = spec::key_dim(model);
  bind_projections(model, parameters, prefix, out.attention);
  bind_attention_parts(model, parameters, layer, frequencies, sequence, prefix, out.attention);
  out.norm2 = bind_norm(model, parameters, prefix + "norm2");
  if (spec::is_routed(model, layer)) {
    out.moe = bind_moe(model, parameters, prefix + "moe");
    out.moe.number = layer;
    out.moe.tp = groups.tp;
    out.moe.shared.down.summed_over = groups.tp;
  } else {
    out.mlp = bind_mlp(model, parameters, prefix + "mlp");
    out.mlp.down.summed_over = groups.tp;
  }
  using spec::Projection;
  std::vector<std::pair<Projection, Linear*>> projections = {
      {Projection::qkv, &out.attention.qkv}, {Projection::output, &out.attention.output}};
  if (!out.moe) {
    projections.emplace_back(Projection::up, &out.mlp.up);
    projections.emplace_back(Projection::down, &out.mlp.down);
  }
  for (const auto& [projection, linear] : projections) {
    linear->adapters = parameters.adapters(prefix, model, projection);
    linear->adapters.dropout_key =
        stream_key(seed, "dropout", prefix + spec::projection_name(model, projection) + ".lora");
  }
  out.adapter_dropout = static_cast<float>(parameters.lora().dropout);
  out.dropout = static_cast<float>(model.dropout);
  out.attention_dropout_key = stream_key(seed, "dropout", prefix + "attention");
  out.mlp_dropout_key = stream_key(seed, "dropout", prefix + "mlp");
  return out;
}

NormLayer bind_final_norm(const spec::ModelConfig& model, const Parameters& parameters) {
  return make_norm(model, parameters.norm("final_norm"));
}

LossLayer bind_loss(const spec::ModelConfig& model, const Parameters& parameters,
                    const Groups& groups) {
  LossLayer out;
  out.head = parameters.linear(model.tied_embeddings ? "embedding.token" : "head");
  out.head.alpha = static_cast<float>(1 / model.logit_divisor);
  out.softcap = static_cast<float>(model.logit_softcap);
  out.tp = groups.tp;
  out.all_columns = model.vocabulary;
  out.first_column = tensor_rank(out.tp) * out.head.weight.rows;
  out.vocabulary =
      std::clamp<int64_t>(model.vocabulary - out.first_column, 0, out.head.weight.rows);
  return out;
}

Unwanted below_lowest_adapter(const spec::ModelConfig& model, const spec::LoraConfig& lora) {
  if (!lora.enabled()) return {};
  const spec::Projection lowest = spec::lowest_projection(model, lora);
  return {true, lowest >= spec::Projection::output, lowest >= spec::Projection::up,
          lowest >= spec::Projection::down};
}

}  // namespace tutti::model
