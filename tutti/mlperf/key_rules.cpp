#include "tutti/mlperf/key_rules.h"

#include <algorithm>
#include <utility>

namespace tutti::mlperf {
namespace {

constexpr double kAnyLow = -1e300;

// tutti_mini, as in catalog/benchmarks/tutti_mini.yaml.
constexpr const char* kTuttiMiniTraining = "00755c9d07cf1b6d";
constexpr const char* kTuttiMiniValidation = "aa319a04e49948c7";
constexpr double kTuttiMiniTarget = 0.75;
constexpr double kTuttiMiniParameters = 586752;

// `adam` is the name under which the optimizer logs: adam or adamw.

Keys optimizer(const std::string& adam, double epsilon) {
  return {one_word("opt_name", {adam}),
          one("opt_end_learning_rate"),
          one_word("opt_learning_rate_decay_schedule", {"cosine with linear warmup"}),
          one_number("opt_" + adam + "_beta_1", {0.9}),
          one_number("opt_" + adam + "_beta_2", {0.95}),
          one_number("opt_" + adam + "_epsilon", {epsilon}),
          one_number("opt_gradient_clip_norm", {1.0}),
          one_positive("gradient_accumulation_steps"),
          one_positive("global_batch_size")};
}

}  // namespace

KeyRule one(std::string key) { return {.key = std::move(key)}; }

KeyRule one_present(std::string key) { return {.key = std::move(key), .test = Test::present}; }

KeyRule one_word(std::string key, Words words) {
  return {.key = std::move(key), .test = Test::word, .words = std::move(words)};
}

KeyRule one_number(std::string key, std::vector<double> numbers) {
  return {.key = std::move(key), .test = Test::number, .numbers = std::move(numbers)};
}

KeyRule one_positive(std::string key) { return {.key = std::move(key), .test = Test::positive}; }

KeyRule one_formula(std::string key, Test test, std::string needs) {
  return {.key = std::move(key), .test = test, .needs = std::move(needs)};
}

KeyRule decay_after_warmup(double steps) {
  return {.key = "opt_learning_rate_decay_steps",
          .test = Test::decay_after_warmup,
          .numbers = {steps},
          .needs = "opt_learning_rate_warmup_steps"};
}

KeyRule some(std::string key) { return {.key = std::move(key), .occurs = Occurs::at_least_one}; }

KeyRule marked(std::string key, Words metadata) {
  return {.key = std::move(key), .occurs = Occurs::any, .metadata = std::move(metadata)};
}

KeyRule reaches(double above, double at_most, std::string progress) {
  return {.key = "eval_accuracy",
          .occurs = Occurs::at_least_one,
          .test = Test::target,
          .metadata = {std::move(progress)},
          .above = above,
          .at_most = at_most};
}

void replace(Keys& keys, KeyRule rule) {
  const auto at =
      std::find_if(keys.begin(), keys.end(), [&](const KeyRule& k) { return k.key == rule.key; });
  if (at == keys.end()) keys.push_back(std::move(rule));
  else *at = std::move(rule);
}

void remove(Keys& keys, std::string_view key) {
  keys.erase(
      std::remove_if(keys.begin(), keys.end(), [&](const KeyRule& k) { return k.key == key; }),
      keys.end());
}

Keys with(Keys keys, const Keys& more) {
  for (const KeyRule& rule : more) replace(keys, rule);
  return keys;
}

Keys gpt3() {
  return with(
      optimizer("adam", 1e-8),
      {one_number("max_sequence_length", {2048}),
       one_number("opt_base_learning_rate", {2e-5, 3e-5}), one("opt_learning_rate_decay_steps"),
       one("opt_learning_rate_warmup_steps"), one("eval_samples"), reaches(2.6, 2.69, "epoch_num"),
       one_positive("init_checkpoint_step")});
}

Keys llama31_405b() {
  return with(
      optimizer("adamw", 1e-5),
      {one_number("max_sequence_length", {8192}), one_number("opt_adamw_weight_decay", {0.1}),
       one_formula("opt_base_learning_rate", Test::rate_405b, "global_batch_size"),
       one("opt_learning_rate_decay_steps"), one("opt_learning_rate_warmup_steps"),
       one_number("eval_samples", {5760}), reaches(0, 5.6, "samples_count"),
       one_number("init_checkpoint_step", {0})});
}

// Open: any hyperparameters, but they must be logged.
Keys open_llama31_405b() {
  Keys keys = llama31_405b();
  for (const char* free : {"opt_base_learning_rate", "opt_learning_rate_decay_schedule",
                           "opt_adamw_beta_1", "opt_adamw_beta_2", "opt_adamw_epsilon",
                           "opt_adamw_weight_decay", "opt_gradient_clip_norm"}) {
    replace(keys, one(free));
  }
  replace(keys, one("global_batch_size"));
  replace(keys, reaches(0, 5.6, "epoch_num"));
  return keys;
}

Keys llama31_8b() {
  return with(
      optimizer("adamw", 1e-5),
      {one_number("max_sequence_length", {8192}), one_number("opt_adamw_weight_decay", {0.1}),
       one("opt_base_learning_rate"), one("opt_learning_rate_warmup_steps"),
       decay_after_warmup(1'200'000), one_number("eval_samples", {1024}),
       reaches(0, 3.3, "samples_count"), one_number("max_steps", {1200000})});
}

Keys llama2_70b_lora() {
  return {one_positive("global_batch_size"),
          one("opt_base_learning_rate"),
          one("opt_learning_rate_training_steps"),
          one("opt_gradient_clip_norm"),
          one("opt_adamw_weight_decay"),
          one_positive("gradient_accumulation_steps"),
          one("lora_alpha"),
          one_number("lora_rank", {16}),
          reaches(0, 0.925, "samples_count")};
}

// The schedule of 8B, another target.
Keys gpt_oss_20b() { return with(llama31_8b(), {reaches(0, 3.34, "samples_count")}); }

// Open: any hyperparameters, but they must be logged.
Keys open_gpt_oss_20b() {
  return {one_number("max_sequence_length", {8192}),
          one_word("opt_name", {"adamw"}),
          one("opt_base_learning_rate"),
          one("opt_end_learning_rate"),
          one("opt_learning_rate_warmup_steps"),
          one("opt_learning_rate_decay_steps"),
          one("opt_learning_rate_decay_schedule"),
          one("opt_adamw_beta_1"),
          one("opt_adamw_beta_2"),
          one("opt_adamw_epsilon"),
          one("opt_adamw_weight_decay"),
          one("opt_gradient_clip_norm"),
          one("gradient_accumulation_steps"),
          one("eval_samples"),
          one("max_steps"),
          reaches(0, 3.34, "samples_count")};
}

Keys deepseekv3_671b() {
  Keys keys = with(optimizer("adamw", 1e-8),
                   {{.key = "global_batch_size", .test = Test::at_least, .numbers = {15'360}},
                    one_number("max_sequence_length", {4096}),
                    one_formula("opt_base_learning_rate", Test::rate_deepseek, "global_batch_size"),
                    one("max_steps"),
                    one_number("opt_learning_rate_warmup_steps", {4}),
                    decay_after_warmup(12'000),
                    one_number("opt_adamw_weight_decay", {0.1}),
                    one_number("moe_aux_loss_coeff", {0.01}),
                    one_number("eval_samples", {1024}),
                    reaches(0, 3.6, "samples_count")});
  remove(keys, "opt_end_learning_rate");
  return keys;
}

Keys open_deepseekv3_671b() {
  Keys keys = deepseekv3_671b();
  for (const char* free :
       {"opt_base_learning_rate", "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps",
        "opt_learning_rate_decay_schedule", "opt_adamw_beta_1", "opt_adamw_beta_2",
        "opt_adamw_epsilon", "opt_adamw_weight_decay", "opt_gradient_clip_norm",
        "moe_aux_loss_coeff"}) {
    replace(keys, one(free));
  }
  return keys;
}

// Open fine-tuning and 8B only need a loss below one.
Keys open_any_loss(const std::string& progress) {
  return {reaches(kAnyLow, 0.9999999999999999, progress)};
}

Keys disclosure(Occurs occurs) {
  Words precisions = {
      "fp64", "fp32",  "tf32", "fp16", "fp8", "nvfp4", "mxfp4", "bfloat16", "Graphcore FLOAT 16.16",
      "int8", "uint8", "int4", "uint4"};
  const bool required = occurs == Occurs::exactly_one;
  if (required) precisions.emplace_back("mxfp6");
  Keys keys;
  for (const char* part : {"linear", "attn", "comm"}) {
    keys.push_back({.key = std::string("lowest_numerical_precision_in_") + part,
                    .occurs = occurs,
                    .test = Test::word,
                    .words = precisions});
  }
  for (const char* count : {"tensor_parallelism", "pipeline_parallelism", "context_parallelism",
                            "expert_parallelism", "micro_batch_size"}) {
    keys.push_back({.key = count, .occurs = occurs, .test = Test::integer});
    if (required) keys.back().numbers = {1};
  }
  keys.push_back(
      {.key = "config_filename", .occurs = occurs, .test = required ? Test::present : Test::any});
  return keys;
}

// Batch, learning rate and schedule are free, as in 8B; the model is named by its data and target.
Keys tutti_mini() {
  return {one_word("opt_name", {"adamw"}),
          one("opt_base_learning_rate"),
          one("opt_end_learning_rate"),
          one("opt_learning_rate_warmup_steps"),
          one("opt_learning_rate_decay_steps"),
          one("opt_learning_rate_decay_schedule"),
          one_number("opt_adamw_beta_1", {0.9}),
          one_number("opt_adamw_beta_2", {0.95}),
          one_number("opt_adamw_epsilon", {1e-8}),
          one_number("opt_adamw_weight_decay", {0.1}),
          one_number("opt_gradient_clip_norm", {1.0}),
          one_positive("gradient_accumulation_steps"),
          one_positive("global_batch_size"),
          one_number("max_sequence_length", {128}),
          one_number("parameters", {kTuttiMiniParameters}),
          one_number("eval_samples", {64}),
          one_number("init_checkpoint_step", {0}),
          one_word("train_corpus_xxh3", {kTuttiMiniTraining}),
          one_word("validation_corpus_xxh3", {kTuttiMiniValidation}),
          reaches(0, kTuttiMiniTarget, "samples_count")};
}

}  // namespace tutti::mlperf
