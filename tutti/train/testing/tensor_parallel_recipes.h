// Small recipes that tensor parallel ranks divide, and worlds of threads that run them.
#pragma once

#include <utility>

#include "tutti/train/testing/layouts.h"

namespace tutti::train::testing {

// Sizes that 2, 3, 4 and 6 ranks divide; a vocabulary that leaves some of them nothing but padding.
inline spec::Recipe divided_gpt(double dropout = 0) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.heads = recipe.model.kv_heads = 12;
  recipe.model.head_dim = 4;
  recipe.model.ffn = 48;
  recipe.model.dropout = dropout;
  return recipe;
}

// With four ranks each pair of them has the same key/value head.
inline spec::Recipe divided_llama() {
  spec::Recipe recipe = llama_recipe();
  recipe.model.heads = 12;
  recipe.model.ffn = 36;
  return recipe;
}

// With parts of newer models that ranks divide, or do on their own rows.
inline spec::Recipe divided_gemma() {
  spec::Recipe recipe = gemma_recipe();
  recipe.model.heads = 12;
  recipe.model.ffn = 36;
  recipe.model.residual_multiplier = 0.7;
  return recipe;
}

// What is compressed every rank computes of all rows.
inline spec::Recipe divided_latent() {
  spec::Recipe recipe = latent_recipe();
  recipe.model.heads = recipe.model.kv_heads = 12;
  recipe.model.ffn = 36;
  return recipe;
}

inline spec::Recipe divided(spec::Recipe recipe, const spec::Mesh& mesh) {
  recipe = recipe_on(std::move(recipe), mesh);
  recipe.batch = {12, 2, 6};  // 12 rows: blocks begin within sequences
  return recipe;
}

inline spec::Recipe with_adapters(spec::Recipe recipe, double dropout) {
  recipe = adapted(std::move(recipe));
  recipe.lora.dropout = dropout;
  return recipe;
}

}  // namespace tutti::train::testing
