#include "tutti/spec/model/flops.h"

#include <algorithm>

#include "tutti/base/real.h"
#include "tutti/spec/program/operation.h"

namespace tutti::spec {
namespace {

double attention_parameters(const ModelConfig& model) {
  const double hidden = real(model.hidden);
  const double heads = real(model.heads);
  if (model.attention == Attention::grouped) {
    return hidden * real(model.head_dim) * (2 * heads + 2 * real(model.kv_heads));
  }
  const LatentAttention& latent = model.latent;
  const double key = real(latent.nope_head_dim + latent.rope_head_dim);
  const double query_rank = real(latent.query_rank);
  const double query =
      latent.query_rank > 0 ? query_rank * (hidden + heads * key) : hidden * heads * key;
  const double kv_rank = real(latent.key_value_rank);
  return query + hidden * (kv_rank + real(latent.rope_head_dim)) +
         kv_rank * heads * real(latent.nope_head_dim + latent.value_head_dim) +
         heads * real(latent.value_head_dim) * hidden;
}

double mlp_parameters(const ModelConfig& model, double width) {
  return (is_gated(model) ? 3 : 2) * real(model.hidden) * width;
}

double routed_parameters(const ModelConfig& model) {
  const MixtureOfExperts& moe = model.moe;
  return mlp_parameters(model, real((moe.top_k + moe.shared_experts) * moe.expert_ffn)) +
         real(model.hidden * moe.experts);
}

// Multiply-adds per token of layer `layer`, forward, with the full square of a sequence, or with
// twice the pairs inside a window.
double attention_pairs(const ModelConfig& model, int64_t layer, int64_t sequence) {
  const LatentAttention& latent = model.latent;
  const int64_t widths = model.attention == Attention::grouped
                             ? 2 * model.head_dim
                             : latent.nope_head_dim + latent.rope_head_dim + latent.value_head_dim;
  const int64_t window = window_of(model, layer, sequence);
  const double seen =
      window == 0 ? real(sequence) : 2 * seen_pairs(sequence, window) / real(sequence);
  return real(model.heads) * real(widths) * seen;
}

// The same over `layers` layers; layers beyond the model's last count as the last.
double attention_pairs_of_all(const ModelConfig& model, int64_t layers, int64_t sequence) {
  if (model.window == 0) return real(layers) * attention_pairs(model, 0, sequence);
  double sum = 0;
  for (int64_t i = 0; i < layers; ++i) {
    sum += attention_pairs(model, std::min(i, model.layers - 1), sequence);
  }
  return sum;
}

}  // namespace

double flops_per_token(const ModelConfig& model, int64_t sequence, FlopConvention convention) {
  const bool routed = model.moe.experts > 0;
  const double dense_layers = real(routed ? model.moe.first_dense_layers : model.layers);
  const double routed_layers = real(model.layers) - dense_layers;
  const double modules = real(model.prediction_layers);
  const double hidden = real(model.hidden);

  const double dense = mlp_parameters(model, real(model.ffn));
  const double last_kind = routed ? routed_parameters(model) : dense;
  const double all_layers = real(model.layers) + modules;
  const double layer_parameters = all_layers * attention_parameters(model) + dense_layers * dense +
                                  routed_layers * routed_parameters(model) + modules * last_kind +
                                  modules * 2 * hidden * hidden;
  const double head_parameters = (1 + modules) * hidden * real(model.vocabulary);
  const double share = convention == FlopConvention::causal ? 0.5 : 1;
  const double pairs =
      share * attention_pairs_of_all(model, model.layers + model.prediction_layers, sequence);
  const double layer_factor = convention == FlopConvention::hardware ? 8 : 6;
  return layer_factor * (layer_parameters + pairs) + 6 * head_parameters;
}

double model_flops_per_token(const ModelConfig& model, int64_t sequence) {
  return flops_per_token(model, sequence, FlopConvention::causal);
}

double teacher_flops_per_token(const Recipe& recipe, int64_t sequence, FlopConvention convention) {
  if (!recipe.distill.enabled()) return 0;
  // A teacher is never recomputed.
  if (convention == FlopConvention::hardware) convention = FlopConvention::square;
  return flops_per_token(teacher_recipe(recipe).model, sequence, convention) / 3;
}

namespace {

double recipe_flops_per_token(const Recipe& recipe, int64_t sequence) {
  const ModelConfig& model = recipe.model;
  const double teacher = teacher_flops_per_token(recipe, sequence, FlopConvention::causal);
  const double all = model_flops_per_token(model, sequence);
  if (!recipe.lora.enabled()) return all + teacher;
  const double pairs = attention_pairs(model, 0, sequence) / 2;  // of the first layer
  const double all_pairs = attention_pairs_of_all(model, model.layers, sequence) / 2;
  const auto parameters = [&](Projection p) {
    return real(projection_inputs(model, p)) * real(projection_outputs(model, p));
  };
  double adapter_parameters = 0;
  for (const Adapter& adapter : adapters(model, recipe.lora)) {
    adapter_parameters +=
        real(recipe.lora.rank) * real(adapter.rows + projection_inputs(model, adapter.projection));
  }
  const double layers = real(model.layers);
  const double weights = (all - 6 * all_pairs) / 6;
  double flops = 4 * weights + 6 * all_pairs + 6 * layers * adapter_parameters;
  const Projection lowest = lowest_projection(model, recipe.lora);
  for (const Projection p :
       {Projection::qkv, Projection::output, Projection::up, Projection::down}) {
    if (p <= lowest) flops -= 2 * parameters(p);
  }
  if (lowest > Projection::qkv) flops -= 4 * pairs;
  return flops + teacher -
         2 * real(adapter_columns(model, recipe.lora, lowest)) *
             real(projection_inputs(model, lowest));
}

}  // namespace

double model_flops_per_token(const Recipe& recipe) {
  return recipe_flops_per_token(recipe, recipe.batch.sequence);
}

double model_flops(const Recipe& recipe, int64_t tokens, int64_t squared_lengths) {
  // FLOPs per token grow linearly with the sequence. With a window they do not: there each
  // document's square counts as much as in a whole sequence.
  const double alone = recipe_flops_per_token(recipe, 0);
  const int64_t length = recipe.model.window > 0 ? recipe.batch.sequence : 1;
  const double per_square = (recipe_flops_per_token(recipe, length) - alone) / real(length);
  return real(tokens) * alone + real(squared_lengths) * per_square;
}

double model_flops_per_step(const Recipe& recipe) {
  return real(recipe.batch.global) * real(recipe.batch.sequence) * model_flops_per_token(recipe);
}

std::string model_flops_formula(const Recipe& recipe) {
  std::string formula = recipe.lora.enabled() ? kLoraFlopsFormula : kModelFlopsFormula;
  if (recipe.distill.enabled()) formula += kTeacherFlopsFormula;
  return formula;
}

}  // namespace tutti::spec
