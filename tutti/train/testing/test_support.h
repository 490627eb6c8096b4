// Small recipes, batches and corpora for the tests of this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/rng.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train::testing {

inline spec::Recipe gpt_recipe() {
  spec::Recipe recipe;
  spec::ModelConfig& model = recipe.model;
  model.name = "test-gpt";
  model.layers = 2;
  model.hidden = 24;
  model.heads = 3;
  model.kv_heads = 3;
  model.head_dim = 8;
  model.ffn = 40;
  model.vocabulary = 101;
  model.context = 16;
  recipe.precision = spec::Precision::f32;
  recipe.batch = {3, 3, 7};
  recipe.optimizer.learning_rate = 1e-3;
  recipe.train.steps = 20;
  recipe.train.seed = 5;
  recipe.checkpoint.every_seconds = 0;
  return recipe;
}

inline spec::Recipe llama_recipe() {
  spec::Recipe recipe = gpt_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-llama";
  model.heads = 6;
  model.kv_heads = 2;
  model.head_dim = 4;
  model.norm = spec::Norm::rms;
  model.activation = spec::Activation::swiglu;
  model.positions = spec::Positions::rope;
  model.linear_bias = false;
  model.norm_bias = false;
  model.tied_embeddings = false;
  return recipe;
}

// With parts that newer models have: of queries and keys (Qwen), of windows and norms on both sides
// (Gemma), of norms after attention and MLP (OLMo 2), of multipliers (Granite).
inline spec::Recipe qwen_recipe() {
  spec::Recipe recipe = llama_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-qwen";
  model.head_dim = 6;
  model.query_key_norm = spec::QueryKeyNorm::head;
  model.biases.qkv = true;
  model.rotated_dims = 4;
  model.window = 3;
  model.global_layers = {0};
  return recipe;
}
inline spec::Recipe gemma_recipe() {
  spec::Recipe recipe = qwen_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-gemma";
  model.biases = {};
  model.rotated_dims = 0;
  model.window = 4;
  model.global_layers = {1};
  model.window_rope_theta = 100;
  model.activation = spec::Activation::geglu;
  model.norm_placement = spec::NormPlacement::both;
  model.norm_offset = 1;
  model.embedding_multiplier = 4.9;
  model.attention_scale = 0.3;
  model.attention_softcap = 2;
  model.logit_softcap = 3;
  model.tied_embeddings = true;
  return recipe;
}
inline spec::Recipe olmo_recipe() {
  spec::Recipe recipe = llama_recipe();
  recipe.model.name = "test-olmo";
  recipe.model.norm_placement = spec::NormPlacement::after;
  recipe.model.query_key_norm = spec::QueryKeyNorm::whole;
  return recipe;
}
inline spec::Recipe granite_recipe() {
  spec::Recipe recipe = llama_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-granite";
  model.biases = {true, true, true, true};
  model.embedding_multiplier = 3;
  model.residual_multiplier = 0.5;
  model.logit_divisor = 2;
  model.attention_scale = 0.2;
  model.unrotated_layers = {1};
  return recipe;
}

// With adapters on every projection.
inline spec::Recipe adapted(spec::Recipe recipe) {
  recipe.model.name += "-lora";
  recipe.lora = {3, 4, 0, {"query", "value", "output"}};
  if (recipe.model.moe.experts == 0) recipe.lora.targets.emplace_back("mlp");
  return recipe;
}

// Learning from a model of the same vocabulary, too.
inline spec::Recipe distilled(spec::Recipe recipe, const spec::ModelConfig& teacher) {
  recipe.model.name += "-distilled";
  recipe.distill = {"teacher", 2, 0.6, teacher};
  return recipe;
}

// Mixtral in small, with losses heavy enough to be seen.
inline spec::Recipe mixtral_recipe() {
  spec::Recipe recipe = llama_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-mixtral";
  model.moe.experts = 5;
  model.moe.top_k = 2;
  model.moe.expert_ffn = 20;
  model.moe.balance_loss = 0.3;
  model.moe.z_loss = 0.2;
  return recipe;
}

// With the parts of gpt-oss.
inline spec::Recipe gpt_oss_recipe() {
  spec::Recipe recipe = mixtral_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-gpt-oss";
  model.activation = spec::Activation::clamped_swiglu;
  model.attention_sinks = true;
  model.moe.biases = true;
  model.biases = {true, true, false, false};
  model.window = 3;
  model.global_layers = {1};
  return recipe;
}

// A dense layer, then layers with a shared expert and a selection bias.
inline spec::Recipe mixed_moe_recipe() {
  spec::Recipe recipe = mixtral_recipe();
  recipe.model.name = "test-mixed-moe";
  recipe.model.layers = 3;
  recipe.model.moe.first_dense_layers = 1;
  recipe.model.moe.shared_experts = 1;
  recipe.model.moe.router_bias = true;
  return recipe;
}

// Latent attention with compressed queries, values narrower than keys, and as wide or wider.
inline spec::Recipe latent_recipe() {
  spec::Recipe recipe = llama_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-latent";
  model.kv_heads = model.heads;
  model.attention = spec::Attention::latent;
  model.latent = {10, 9, 5, 4, 7, 1e-4};
  model.attention_scale = 0.4;
  return recipe;
}
inline spec::Recipe plain_latent_recipe() {
  spec::Recipe recipe = latent_recipe();
  recipe.model.name = "test-plain-latent";
  recipe.model.latent = {0, 8, 3, 2, 11, 0};
  return recipe;
}

// With the parts of DeepSeek-V3: sigmoid scores, choice within groups, a factor of the weights.
inline spec::Recipe deepseek_recipe() {
  spec::Recipe recipe = latent_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = "test-deepseek";
  model.layers = 3;
  spec::MixtureOfExperts& moe = model.moe;
  moe.experts = 6;
  moe.top_k = 2;
  moe.expert_ffn = 20;
  moe.first_dense_layers = 1;
  moe.shared_experts = 1;
  moe.router_bias = true;
  moe.balance_loss = 0.3;
  moe.scores = spec::RouterScores::sigmoid;
  moe.groups = 3;
  moe.top_groups = 2;
  moe.group_best = 2;
  moe.weight_factor = 2.5;
  return recipe;
}

// Experts with gelu in a GPT, and capacity for fewer copies than there are.
inline spec::Recipe capacity_recipe() {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.name = "test-capacity";
  recipe.model.moe = mixed_moe_recipe().model.moe;
  recipe.model.layers = 3;
  recipe.model.moe.capacity_factor = 0.7;
  return recipe;
}

// Endless random micro-batches of a recipe's shape: number i is a function of (seed, i).
class RandomBatches {
 public:
  RandomBatches(const spec::Recipe& recipe, uint64_t seed)
      : rows_(recipe.batch.micro * recipe.batch.sequence),
        vocabulary_(recipe.model.vocabulary),
        key_(stream_key(seed, "test batches")) {}

  BatchView next() {
    const uint64_t first = static_cast<uint64_t>(count_ * (rows_ + 1));
    data_.clear();
    for (int64_t i = 0; i <= rows_; ++i) {
      data_.push_back(static_cast<int32_t>(random_u64(key_, first + static_cast<uint64_t>(i)) %
                                           static_cast<uint64_t>(vocabulary_)));
    }
    return {data_.data(), data_.data() + 1, count_++ * rows_};
  }
  // Continues with micro-batch `number`.
  void seek(int64_t number) { count_ = number; }
  BatchSource source() {
    return [this] { return next(); };
  }

 private:
  int64_t rows_;
  int64_t vocabulary_;
  uint64_t key_;
  int64_t count_ = 0;
  std::vector<int32_t> data_;
};

// Larger weights than initialisation gives, so that every gradient is far from zero; frozen ones
// too.
inline void randomize(Trainer& trainer, uint64_t seed, float scale) {
  for (const spec::PlacedParam& placed : trainer.layout().params) {
    std::vector<float> values(static_cast<size_t>(placed.param.count()));
    fill_normal(values.data(), placed.param.count(), stream_key(seed, "param." + placed.name), 0,
                placed.param.shape.size() == 1 ? 0.5F : 0.0F, scale);
    trainer.state().set_parameter(placed, values.data());
  }
  trainer.state_changed();
}

// Random parameters for the teacher, far from uniform predictions; nothing without one.
inline void randomize_teacher(Trainer& trainer, uint64_t seed = 17) {
  if (!trainer.recipe().distill.enabled()) return;
  const spec::ParamLayout layout =
      spec::param_layout(spec::param_table(*trainer.recipe().distill.model));
  std::vector<float> master(static_cast<size_t>(layout.elements), 0.0F);
  for (const spec::PlacedParam& placed : layout.params) {
    fill_normal(master.data() + placed.element_offset, placed.param.count(),
                stream_key(seed, "teacher." + placed.name), 0,
                placed.param.shape.size() == 1 ? 0.5F : 0.0F, 0.4F);
  }
  trainer.set_teacher(master.data());
}

// The parameters as LoadedRun::master holds them, frozen ones as they are computed with.
inline std::vector<float> flat_parameters(const Trainer& trainer) {
  std::vector<float> master(static_cast<size_t>(trainer.layout().elements), 0.0F);
  const std::vector<StateTensor> state = trainer.state().tensors();
  for (size_t i = 0; i < trainer.layout().params.size(); ++i) {
    const spec::PlacedParam& placed = trainer.layout().params[i];
    if (!placed.param.trainable) {
      const void* weights = trainer.memory().arena("weights").data();
      for (int64_t at = placed.element_offset; at < placed.element_offset + placed.param.count();
           ++at) {
        master[static_cast<size_t>(at)] = trainer.recipe().precision == spec::Precision::f32
                                              ? static_cast<const float*>(weights)[at]
                                              : to_f32(static_cast<const bf16*>(weights)[at]);
      }
      continue;
    }
    const float* from = static_cast<const float*>(state[i].data);
    std::copy(from, from + placed.param.count(), master.begin() + placed.element_offset);
  }
  return master;
}

}  // namespace tutti::train::testing
