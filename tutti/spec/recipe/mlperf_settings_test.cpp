#include "tutti/spec/recipe/mlperf_settings.h"

#include <gtest/gtest.h>

#include <map>

#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

constexpr const char* kRun = R"(
model: {layers: 2, hidden: 24, heads: 3, vocabulary: 101, context: 16}
batch: {global: 12, micro: 2}
parallel: {dp: 2}
optimizer: {learning_rate: 2e-3, beta1: 0.8, beta2: 0.99, epsilon: 1e-6, weight_decay: 0.02,
            clip_norm: 0.5}
schedule: {warmup_steps: 10, decay_steps: 110, minimum_ratio: 0.25, start_step: 7}
train: {steps: 100, seed: 5, target_loss: 2.5}
)";

std::map<std::string, Json> settings(const Recipe& recipe) {
  std::map<std::string, Json> out;
  for (const auto& [key, value] : mlperf_settings(recipe)) {
    EXPECT_TRUE(out.emplace(key, value).second) << key << " twice";
  }
  return out;
}

TEST(MlperfSettings, SayWhatTheRecipeSays) {
  const auto log = settings(parse(kRun, {"mlperf.benchmark=llama31_8b"}));
  EXPECT_EQ(log.at("seed"), 5);
  EXPECT_EQ(log.at("global_batch_size"), 12);
  EXPECT_EQ(log.at("gradient_accumulation_steps"), 3);  // 12 / (2 * 2)
  EXPECT_EQ(log.at("max_sequence_length"), 16);
  EXPECT_EQ(log.at("max_steps"), 100);
  EXPECT_EQ(log.at("init_checkpoint_step"), 7);
  EXPECT_EQ(log.at("opt_name"), "adamw");
  EXPECT_EQ(log.at("opt_base_learning_rate"), 2e-3);
  EXPECT_EQ(log.at("opt_end_learning_rate"), 5e-4);
  EXPECT_EQ(log.at("opt_learning_rate_warmup_steps"), 10);
  EXPECT_EQ(log.at("opt_learning_rate_decay_steps"), 100);  // after the warm-up
  EXPECT_EQ(log.at("opt_learning_rate_decay_schedule"), "cosine with linear warmup");
  EXPECT_EQ(log.at("opt_adamw_beta_1"), 0.8);
  EXPECT_EQ(log.at("opt_adamw_beta_2"), 0.99);
  EXPECT_EQ(log.at("opt_adamw_epsilon"), 1e-6);
  EXPECT_EQ(log.at("opt_adamw_weight_decay"), 0.02);
  EXPECT_EQ(log.at("opt_gradient_clip_norm"), 0.5);
  EXPECT_EQ(log.at("target_accuracy"), 2.5);
  EXPECT_EQ(log.count("lora_rank"), 0U);
}

// The words that mlcommons/logging accepts from ruleset 6.0 on.
TEST(MlperfSettings, DisclosesPrecisionAndLayoutAsTheRulesNameThem) {
  const auto log = settings(parse(kRun, {"mlperf.benchmark=llama31_8b", "precision=bf16"}));
  for (const char* part : {"linear", "attn", "comm"}) {
    EXPECT_EQ(log.at(std::string("lowest_numerical_precision_in_") + part), "bfloat16");
  }
  for (const char* axis : {"tensor", "pipeline", "context", "expert"}) {
    EXPECT_EQ(log.at(std::string(axis) + "_parallelism"), 1);
  }
  EXPECT_EQ(log.at("micro_batch_size"), 2);
  EXPECT_EQ(log.at("config_filename"), "recipe.yaml");
  const auto whole = settings(parse(kRun, {"mlperf.benchmark=llama31_8b", "precision=f32"}));
  EXPECT_EQ(whole.at("lowest_numerical_precision_in_comm"), "fp32");
}

// One routed layer, two experts of a token: a coefficient of 0.01 is a balance_loss of 0.005.
TEST(MlperfSettings, BalanceLossIsLoggedAsMegatronCountsIt) {
  const std::vector<std::string> experts = {"mlperf.benchmark=deepseekv3_671b",
                                            "model.moe.experts=4", "model.moe.top_k=2",
                                            "model.moe.expert_ffn=8"};
  EXPECT_EQ(settings(parse(kRun, experts)).at("moe_aux_loss_coeff"), 0);
  std::vector<std::string> balanced = experts;
  balanced.insert(balanced.end(),
                  {"model.moe.first_dense_layers=1", "model.moe.balance_loss=0.005"});
  EXPECT_EQ(settings(parse(kRun, balanced)).at("moe_aux_loss_coeff"), 0.01);
  // 58 routed layers, 8 experts of a token; the quotient of doubles is not 0.01.
  const auto log = settings(recipe_of("deepseek-v3", {"model.moe.balance_loss=0.0725"}));
  EXPECT_EQ(log.at("moe_aux_loss_coeff"), 0.01);
  EXPECT_EQ(settings(parse(kRun)).count("moe_aux_loss_coeff"), 0U);
}

TEST(MlperfSettings, Gpt3NamesAndCountsInItsOwnWay) {
  const Recipe recipe = parse(kRun, {"mlperf.benchmark=gpt3"});
  const auto log = settings(recipe);
  EXPECT_EQ(log.at("opt_name"), "adam");
  EXPECT_EQ(log.at("opt_adam_beta_2"), 0.99);
  EXPECT_EQ(log.at("opt_learning_rate_decay_steps"), 110);  // with the warm-up
  EXPECT_EQ(mlperf_progress(recipe, 24), (Json{{"samples_count", 24}, {"epoch_num", 24 * 16}}));
  const Recipe other = parse(kRun, {"mlperf.benchmark=llama31_8b"});
  EXPECT_EQ(mlperf_progress(other, 24), (Json{{"samples_count", 24}, {"epoch_num", 24}}));
}

TEST(MlperfSettings, AdaptersAreNamed) {
  const auto log =
      settings(parse(kRun, {"mlperf.benchmark=llama2_70b_lora", "lora.rank=4", "lora.alpha=32"}));
  EXPECT_EQ(log.at("lora_rank"), 4);
  EXPECT_EQ(log.at("lora_alpha"), 32);
}

TEST(MlperfSettings, SubmissionNamesTheMachineUnlessTheRecipeDoes) {
  const auto platform = [](const Recipe& recipe) {
    return mlperf_submission(recipe, "this machine").back();
  };
  const auto named = parse(kRun, {"mlperf.benchmark=gpt3", "mlperf.platform=eos"});
  EXPECT_EQ(platform(named), (std::pair<std::string, Json>("submission_platform", "eos")));
  EXPECT_EQ(platform(parse(kRun)).second, "this machine");
}

}  // namespace
}  // namespace tutti::spec
