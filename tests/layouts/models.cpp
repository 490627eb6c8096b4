#include "tests/layouts/models.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tutti/train/testing/routing_record.h"

namespace tutti::train::testing {
namespace {

constexpr int64_t kSteps = 20;

spec::Recipe model_of(Kind kind) {
  spec::Recipe recipe = kind == Kind::gpt       ? gpt_recipe()
                        : kind == Kind::llama   ? llama_recipe()
                        : kind == Kind::experts ? mixtral_recipe()
                        : kind == Kind::qwen    ? qwen_recipe()
                        : kind == Kind::gemma   ? gemma_recipe()
                                                : granite_recipe();
  spec::ModelConfig& model = recipe.model;
  model.name = name_of(kind);
  model.layers = kind == Kind::llama ? 5 : 4;
  model.hidden = 24;
  model.heads = kind == Kind::gpt ? 4 : 8;
  model.kv_heads = kind == Kind::gpt ? 4 : 2;
  model.head_dim = kind == Kind::gpt ? 6 : 4;
  model.ffn = 40;
  if (kind == Kind::experts) model.moe.experts = 4;
  return recipe;
}

spec::Recipe on(const Layout& layout, const spec::Mesh& mesh, int64_t micro) {
  spec::Recipe recipe = model_of(layout.kind);
  recipe.parallel = mesh;
  recipe.threads = 1;
  const bool divided = layout.mesh.tp > 1 || layout.mesh.cp > 1;
  recipe.batch = {24, micro, divided ? 16 : 7};
  recipe.model.dropout = layout.dropout;
  if (layout.recompute) recipe.recompute.mode = spec::RecomputeMode::full;
  return layout.adapters ? adapted(recipe) : recipe;
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::gpt: return "gpt";
    case Kind::llama: return "llama";
    case Kind::experts: return "experts";
    case Kind::qwen: return "qwen";
    case Kind::gemma: return "gemma";
    case Kind::granite: return "granite";
  }
  return "?";
}

std::string text_of(const Layout& layout) {
  std::string text = fmt::format("{} {}", name_of(layout.kind), text_of(layout.mesh));
  if (layout.micro != 1) text += fmt::format(" micro {}", layout.micro);
  if (layout.dropout > 0) text += fmt::format(" dropout {}", layout.dropout);
  if (layout.recompute) text += " recompute";
  if (layout.adapters) text += " lora";
  return text;
}

spec::Recipe recipe_of(const Layout& layout) { return on(layout, layout.mesh, layout.micro); }

namespace {

// What one rank did, and what its routers chose: near-ties would turn out otherwise elsewhere.
struct Alone {
  RoutingRecord routing;
  Training training;
};
Alone& make_alone(const Layout& layout) {
  static std::map<std::string, Alone> made;
  Layout same = layout;
  same.mesh = {};
  same.micro = 2;
  same.recompute = false;
  const spec::Recipe recipe = on(layout, {}, 2);
  const std::string key = fmt::format("{} {}", text_of(same), recipe.batch.sequence);
  const auto [found, is_new] = made.try_emplace(key);
  Alone& one = found->second;
  if (is_new) one.training = train_on(recipe, kSteps, {}, one.routing.recorder());
  return one;
}

}  // namespace

const Training& alone(const Layout& layout) { return make_alone(layout).training; }

Prepare same_routing(const Layout& layout) { return make_alone(layout).routing.player(); }

Training train_again(const Layout& layout, int64_t steps, const Sabotage& sabotage,
                     const Prepare& prepare) {
  const Prepare play = same_routing(layout);
  return train_on(recipe_of(layout), steps, sabotage, [&](Trainer& trainer) {
    play(trainer);
    if (prepare) prepare(trainer);
  });
}

void expect_same_as_alone(const Layout& layout) {
  SCOPED_TRACE(text_of(layout));
  expect_same(train_again(layout, kSteps), alone(layout));
}

}  // namespace tutti::train::testing
