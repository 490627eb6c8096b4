// Optional parts of a model: they are read as written, omitted from the text of models without
// them, and refused where they cannot be computed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/program/operation.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {
namespace {

constexpr const char* kPlain =
    "model: {layers: 4, hidden: 32, heads: 4, kv_heads: 2, ffn: 48, vocabulary: 61, context: 64, "
    "norm: rms, activation: swiglu, positions: rope, linear_bias: false}\n"
    "batch: {global: 2, micro: 2, sequence: 16}\n";

Recipe recipe_with(const std::string& keys) {
  std::string text = kPlain;
  text.replace(text.find("linear_bias"), 0, keys);
  return parse_recipe(text, "recipe", {}, "");
}

std::string refusal(const std::string& keys) {
  try {
    validate(recipe_with(keys).model);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ModelParts, TextOfModelsWithoutThemIsUnchanged) {
  const std::string text = to_yaml(recipe_with("").model);
  for (const char* key :
       {"biases", "norm_placement", "norm_offset", "query_key_norm", "attention_scale", "softcap",
        "multiplier", "logit_divisor", "window", "global_layers", "rotated", "kind:", "amplitude",
        "renormalize", "sinks", "rounded", "scores", "groups", "weight_factor"}) {
    EXPECT_EQ(text.find(key), std::string::npos) << key;
  }
}

TEST(ModelParts, AreReadAsWritten) {
  const Recipe recipe = recipe_with(
      "biases: [qkv, down], norm_placement: both, norm_offset: 1, query_key_norm: head, "
      "attention_scale: 0.3, attention_softcap: 50, logit_softcap: 30, embedding_multiplier: 12, "
      "residual_multiplier: 0.22, logit_divisor: 8, window: 5, global_layers: [1, 3], "
      "window_rope_theta: 100, rotated_dims: 4, unrotated_layers: [2], "
      "rope_scaling: {kind: yarn, factor: 4, fast_turns: 16, slow_turns: 2, amplitude: 1.5}, ");
  const ModelConfig& model = recipe.model;
  EXPECT_EQ(model.biases, (ProjectionBiases{true, false, false, true}));
  EXPECT_EQ(model.global_layers, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(model.rope_scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(parse_recipe(to_yaml(recipe), "again", {}, "").model, model);
  EXPECT_NE(to_yaml(recipe), to_yaml(recipe_with("")));
}

TEST(ModelParts, PartsOfGptOssAreReadAsWritten) {
  const Recipe recipe = recipe_with(
      "attention_sinks: true, moe: {experts: 4, top_k: 2, expert_ffn: 8, biases: true}, "
      "rope_scaling: {kind: yarn, factor: 4, rounded: false}, ");
  EXPECT_TRUE(recipe.model.attention_sinks && recipe.model.moe.biases);
  EXPECT_FALSE(recipe.model.rope_scaling.rounded);
  EXPECT_EQ(parse_recipe(to_yaml(recipe), "again", {}, "").model, recipe.model);
  EXPECT_NE(refusal("moe: {experts: 4, top_k: 2, expert_ffn: 8, biases: true, router_bias: true}, ")
                .find("model.moe.biases: true"),
            std::string::npos);
}

TEST(ModelParts, PartsOfExpertsAreReadAsWritten) {
  const Recipe recipe =
      recipe_with("moe: {experts: 4, top_k: 2, expert_ffn: 8, renormalize: false}, ");
  EXPECT_FALSE(recipe.model.moe.renormalize);
  EXPECT_NE(to_yaml(recipe).find("renormalize: false"), std::string::npos);
  EXPECT_EQ(parse_recipe(to_yaml(recipe), "again", {}, "").model, recipe.model);
  const std::string usual =
      to_yaml(recipe_with("moe: {experts: 4, top_k: 2, expert_ffn: 8, renormalize: true}, "));
  EXPECT_EQ(usual, to_yaml(recipe_with("moe: {experts: 4, top_k: 2, expert_ffn: 8}, ")));
}

TEST(ModelParts, AddTheirParameters) {
  const auto count = [](const std::string& keys) {
    return param_table(recipe_with(keys).model, 1).count();
  };
  const int64_t plain = count("");
  EXPECT_EQ(count("biases: qkv, "), plain + 4 * (4 + 2 * 2) * 8);
  EXPECT_EQ(count("query_key_norm: head, "), plain + 4 * 2 * 8);
  EXPECT_EQ(count("query_key_norm: whole, "), plain + 4 * (4 + 2) * 8);
  EXPECT_EQ(count("norm_placement: both, "), plain + 4 * 2 * 32);
  EXPECT_EQ(count("norm_placement: after, "), plain);
  const std::string experts = "moe: {experts: 4, top_k: 2, expert_ffn: 8}, ";
  EXPECT_EQ(count(experts + "query_key_norm: head, "), count(experts) + 4 * 2 * 8);
  EXPECT_EQ(count("attention_sinks: true, "), plain + 4 * 4);
  EXPECT_EQ(count("moe: {experts: 4, top_k: 2, expert_ffn: 8, biases: true}, "),
            count(experts) + 4 * 4 * (1 + 2 * 8 + 32));
  EXPECT_EQ(count(experts + "norm_placement: both, "), count(experts) + 4 * 2 * 32);
}

TEST(ModelParts, AreRefusedByName) {
  EXPECT_NE(refusal("window: 4, global_layers: [4], ").find("global_layers: 4"), std::string::npos);
  EXPECT_NE(refusal("global_layers: [1], ").find("needs model.window"), std::string::npos);
  EXPECT_NE(refusal("rotated_dims: 3, ").find("model.rotated_dims: 3"), std::string::npos);
  EXPECT_NE(refusal("biases: [gate], ").find("'gate' is unknown; accepted: a list of qkv"),
            std::string::npos);
}

std::string unexecutable(const Recipe& recipe) {
  try {
    check_executable(recipe, recipe.parallel.world());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct PartElsewhere {
  const char* keys;
  const char* said;
  Activation activation = Activation::swiglu;
};
constexpr PartElsewhere kOnTheCpuOnly[] = {
    {"", "activation: geglu", Activation::geglu},
    {"", "activation: clamped-swiglu", Activation::clamped_swiglu},
    {"attention_sinks: true, ", "attention_sinks"},
    {"moe: {experts: 4, top_k: 2, expert_ffn: 8, biases: true}, ", "moe.biases"},
    {"moe: {experts: 4, top_k: 2, expert_ffn: 8, scores: sigmoid}, ", "moe.scores: sigmoid"},
    {"moe: {experts: 4, top_k: 2, expert_ffn: 8, groups: 2}, ", "moe.groups"},
    {"moe: {experts: 4, top_k: 2, expert_ffn: 8, weight_factor: 2}, ", "moe.weight_factor"},
    {"norm_placement: both, ", "norm_placement"},
    {"norm_offset: 1, ", "norm_offset"},
    {"query_key_norm: head, ", "query_key_norm"},
    {"attention_softcap: 50, ", "attention_softcap"},
    {"logit_softcap: 30, ", "logit_softcap"},
    {"embedding_multiplier: 12, ", "embedding_multiplier"},
    {"residual_multiplier: 0.22, ", "residual_multiplier"},
    {"window: 4, ", "window"},
    {"rotated_dims: 4, ", "rotated_dims"},
    {"rope_scaling: {kind: yarn, factor: 4}, ", "rope_scaling.kind: yarn"},
};

// Errors name the part and a remedy, for the model and for a teacher; parts that cuda supports
// pass.
TEST(ModelParts, AreRefusedOnOtherDevicesByName) {
  for (const PartElsewhere& part : kOnTheCpuOnly) {
    SCOPED_TRACE(part.said);
    Recipe recipe = recipe_with(part.keys);
    recipe.model.activation = part.activation;
    EXPECT_EQ(unexecutable(recipe), "");
    recipe.device = "cuda";
    const std::string wanted = fmt::format("{} with device: cuda; take device: cpu", part.said);
    EXPECT_NE(unexecutable(recipe).find("model." + wanted), std::string::npos)
        << unexecutable(recipe);
    Recipe student = recipe_with("");
    student.device = "cuda";
    student.distill.teacher = "runs/teacher";
    student.distill.model = recipe.model;
    EXPECT_NE(unexecutable(student).find("distill.model." + wanted), std::string::npos)
        << unexecutable(student);
  }
  for (const char* keys :
       {"biases: [qkv, down], ", "attention_scale: 0.3, ", "logit_divisor: 8, ",
        "unrotated_layers: [2], ", "rope_scaling: {kind: linear, factor: 2}, "}) {
    Recipe recipe = recipe_with(keys);
    recipe.device = "cuda";
    EXPECT_EQ(unexecutable(recipe), "") << keys;
  }
  Recipe recipe = recipe_with("window: 16, ");  // masks nothing of 16 tokens
  recipe.device = "cuda";
  EXPECT_EQ(unexecutable(recipe), "");
}

TEST(ModelParts, ImpossibleCombinationsAreRefusedByName) {
  const auto expect_said = [](const Recipe& recipe, const std::string& said) {
    EXPECT_NE(unexecutable(recipe).find(said), std::string::npos) << unexecutable(recipe);
  };
  Recipe recipe = recipe_with("query_key_norm: whole, ");
  recipe.parallel.tp = 2;
  expect_said(recipe, "model.query_key_norm: whole with parallel.tp: 2");
  for (const char* keys :
       {"query_key_norm: head, ", "norm_placement: after, ", "attention_sinks: true, "}) {
    recipe = recipe_with(keys);
    recipe.parallel.pp = 2;
    recipe.parallel.pipeline = Pipeline::zero_bubble;
    expect_said(recipe, "write parallel.schedule: 1f1b");
  }
  recipe = recipe_with("logit_divisor: 8, ");
  recipe.precision = Precision::fp8;
  recipe.narrow.head = true;
  expect_said(recipe, "model.logit_divisor: 8 with precision.head");

  // A teacher's window must equal the model's, if it masks anything.
  recipe = recipe_with("window: 4, ");
  recipe.distill.teacher = "runs/teacher";
  recipe.distill.model = recipe.model;
  EXPECT_EQ(unexecutable(recipe), "");
  recipe.distill.model->window = 5;
  expect_said(recipe, "distill.model.window: 5 beside model.window: 4");
  recipe.distill.model->window = 16;
  EXPECT_EQ(unexecutable(recipe), "");
  recipe.distill.model->window = 4;
  recipe.model.global_layers = {0, 1, 2, 3};
  expect_said(recipe, "distill.model.window: 4 beside model.window: 4");
  recipe.distill.model = recipe_with("logit_softcap: 30, ").model;
  expect_said(recipe, "distill.model.logit_softcap: 30");
}

// Where layers share the memory of gradients in turn, no micro-batch accumulates into gradients of
// norms, which the backward_input pass writes (of all norms on a device).
TEST(ModelParts, LayersThatShareMemoryOverwriteGradientsOfNorms) {
  for (const char* device : {"cpu", "cuda"}) {
    for (const int64_t zero : {0, 1, 2, 3}) {
      Recipe recipe =
          recipe_with("query_key_norm: head, norm_placement: both, attention_sinks: true, ");
      recipe.device = device;
      recipe.batch.global = 8;
      recipe.parallel.dp = 2;
      recipe.parallel.zero = zero;
      const Program program = make_program(recipe, tutti_profile_on(recipe));
      int64_t adding = 0;
      for (const Op& op : program.kind("block").backward_input) {
        const std::string_view name = op.name;
        if (name.find("norm") != std::string_view::npos || name == "attention_sink_backward") {
          adding += op.bytes > op.first_bytes ? 1 : 0;
        }
      }
      // The norms of two branches, queries, keys and sinks; besides them the two norms before.
      const int64_t all = recipe.device == "cpu" ? 5 : 7;
      EXPECT_EQ(adding, zero < 2 ? all : 0) << device << " zero " << zero;
    }
  }
}

TEST(ModelParts, PairsOfAWindow) {
  for (const int64_t tokens : {1, 7, 64}) {
    for (const int64_t window : {0, 1, 2, 6, 7, 8, 100}) {
      double pairs = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, t - window + 1);
        pairs += static_cast<double>(t - first) + 0.5;
      }
      EXPECT_EQ(seen_pairs(tokens, window), pairs) << tokens << " " << window;
    }
  }
}

// Model FLOPs decrease by what the window masks.
TEST(ModelParts, WindowsCountOnlyVisiblePairs) {
  const Recipe all = recipe_with("");
  const Recipe some = recipe_with("window: 4, global_layers: [0], ");
  const double hidden = seen_pairs(16, 0) - seen_pairs(16, 4);
  EXPECT_DOUBLE_EQ(model_flops_per_step(all) - model_flops_per_step(some),
                   2 * 3 * 6 * (4 * 8 * 2) * hidden);
}

}  // namespace
}  // namespace tutti::spec
