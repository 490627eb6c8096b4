#include "tutti/mlperf/ruleset.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

using Words = std::vector<std::string>;
using Keys = std::vector<KeyRule>;

// The forms a rule takes.

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

KeyRule some(std::string key) { return {.key = std::move(key), .occurs = Occurs::at_least_one}; }

KeyRule marked(std::string key, Words metadata) {
  return {.key = std::move(key), .occurs = Occurs::any, .metadata = std::move(metadata)};
}

// eval_accuracy: every one carries `progress`, and one is above `above` and at most `at_most`.
KeyRule reaches(double above, double at_most, std::string progress) {
  return {.key = "eval_accuracy",
          .occurs = Occurs::at_least_one,
          .test = Test::target,
          .metadata = {std::move(progress)},
          .above = above,
          .at_most = at_most};
}

constexpr double kAnyLow = -1e300;

// tutti_mini, as in catalog/benchmarks/tutti_mini.yaml.
constexpr const char* kTuttiMiniTraining = "00755c9d07cf1b6d";
constexpr const char* kTuttiMiniValidation = "aa319a04e49948c7";
constexpr double kTuttiMiniTarget = 0.75;
constexpr double kTuttiMiniParameters = 586752;

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

void set_rules(Ruleset& ruleset, const std::string& benchmark, const std::string& division,
               Keys keys) {
  for (BenchmarkRules& rules : ruleset.benchmarks) {
    if (rules.benchmark == benchmark && rules.division == division) {
      rules.keys = std::move(keys);
      return;
    }
  }
  ruleset.benchmarks.push_back({benchmark, division, std::move(keys)});
}

void drop_benchmark(Ruleset& ruleset, const std::string& benchmark) {
  auto& all = ruleset.benchmarks;
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const BenchmarkRules& r) { return r.benchmark == benchmark; }),
            all.end());
}

// Benchmarks. `adam` is the name under which the optimizer logs: adam or adamw.

Keys optimizer(const std::string& adam, double epsilon) {
  return {one_word("opt_name", {adam}),
          one("opt_end_learning_rate"),
          one_word("opt_learning_rate_decay_schedule", {"cosine with linear warmup"}),
          one_number("opt_" + adam + "_beta_1", {0.9}),
          one_number("opt_" + adam + "_beta_2", {0.95}),
          one_number("opt_" + adam + "_epsilon", {epsilon}),
          one_number("opt_gradient_clip_norm", {1.0}),
          one_positive("gradient_accumulation_steps"),
          one("global_batch_size")};
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
  replace(keys, reaches(0, 5.6, "epoch_num"));
  return keys;
}

Keys llama31_8b() {
  return with(
      optimizer("adamw", 1e-5),
      {one_number("max_sequence_length", {8192}), one_number("opt_adamw_weight_decay", {0.1}),
       one("opt_base_learning_rate"), one("opt_learning_rate_warmup_steps"),
       one_formula("opt_learning_rate_decay_steps", Test::decay_8b,
                   "opt_learning_rate_warmup_steps"),
       one_number("eval_samples", {1024}), reaches(0, 3.3, "samples_count"),
       one_number("max_steps", {1200000})});
}

Keys llama2_70b_lora() {
  return {one("global_batch_size"),
          one("opt_base_learning_rate"),
          one("opt_learning_rate_training_steps"),
          one("opt_gradient_clip_norm"),
          one("opt_adamw_weight_decay"),
          one_positive("gradient_accumulation_steps"),
          one("lora_alpha"),
          one_number("lora_rank", {16}),
          reaches(0, 0.925, "samples_count")};
}

// Open fine-tuning and 8B only need a loss below one.
Keys open_any_loss() { return {reaches(kAnyLow, 0.9999999999999999, "epoch_num")}; }

// Rulesets, each from the one before.

Ruleset rules_3_0_0() {
  Ruleset rules;
  rules.version = "3.0.0";
  rules.common = {
      one_present("submission_org"),
      one_present("submission_platform"),
      one_word("submission_division", {"closed", "open"}),
      one_word("submission_status", {"cloud", "onprem", "preview", "research"}),
      one("submission_benchmark"),
      some("cache_clear"),
      some("init_start"),
      one("init_stop"),
      one("run_start"),
      {.key = "run_stop", .metadata = {"status"}},
      marked("block_start", {"epoch_count"}),
      marked("block_stop", {"first_epoch_num"}),
      marked("epoch_start", {"epoch_num"}),
      marked("epoch_stop", {"epoch_num"}),
      marked("eval_start", {"epoch_num"}),
      marked("eval_stop", {"epoch_num"}),
      {.key = "eval_accuracy", .occurs = Occurs::at_least_one, .metadata = {"epoch_num"}},
      one_present("train_samples"),
      one_present("eval_samples")};
  rules.closed_benchmarks = {"resnet",     "ssd",  "maskrcnn", "gpt3",
                             "dlrm_dcnv2", "bert", "rnnt",     "unet3d"};
  rules.open_benchmarks = rules.closed_benchmarks;
  set_rules(rules, "gpt3", "closed", gpt3());
  return rules;
}

// Blocks and evaluations may count by another member than epochs.
void count_by(Ruleset& rules, const std::string& member) {
  rules.block_count = member;
  replace(rules.common, marked("block_start", {"epoch_count", member}));
  replace(rules.common, marked("block_stop", {"first_epoch_num", member}));
  replace(rules.common, marked("eval_start", {"epoch_num", member}));
  replace(rules.common, marked("eval_stop", {"epoch_num", member}));
  replace(
      rules.common,
      {.key = "eval_accuracy", .occurs = Occurs::at_least_one, .metadata = {"epoch_num", member}});
}

Ruleset rules_3_1_0() {
  Ruleset rules = rules_3_0_0();
  rules.version = "3.1.0";
  count_by(rules, "step_num");
  rules.closed_benchmarks.emplace_back("stable_diffusion");
  rules.open_benchmarks.emplace_back("stable_diffusion");
  return rules;
}

Ruleset rules_4_0_0() {
  Ruleset rules = rules_3_1_0();
  rules.version = "4.0.0";
  count_by(rules, "samples_count");
  rules.open_benchmarks.emplace_back("gnn");
  rules.closed_benchmarks.emplace_back("gnn");
  rules.closed_benchmarks.emplace_back("llama2_70b_lora");
  set_rules(rules, "llama2_70b_lora", "closed", llama2_70b_lora());
  set_rules(rules, "gpt3", "open", gpt3());
  return rules;
}

Ruleset rules_4_1_0() {
  Ruleset rules = rules_4_0_0();
  rules.version = "4.1.0";
  rules.checks_availability = true;
  remove(rules.common, "submission_status");
  return rules;
}

Ruleset rules_5_0_0() {
  Ruleset rules = rules_4_1_0();
  rules.version = "5.0.0";
  remove(rules.common, "submission_org");
  remove(rules.common, "submission_platform");
  replace(rules.common, marked("epoch_start", {"epoch_num", "samples_count"}));
  replace(rules.common, marked("epoch_stop", {"epoch_num", "samples_count"}));
  rules.closed_benchmarks = {"retinanet", "stable_diffusion", "dlrm_dcnv2",  "bert",
                             "rgat",      "llama2_70b_lora",  "llama31_405b"};
  rules.open_benchmarks = rules.closed_benchmarks;
  drop_benchmark(rules, "gpt3");
  set_rules(rules, "llama31_405b", "closed", llama31_405b());
  set_rules(rules, "llama31_405b", "open", open_llama31_405b());
  set_rules(rules, "llama2_70b_lora", "open", open_any_loss());
  return rules;
}

Ruleset rules_5_1_0() {
  Ruleset rules = rules_5_0_0();
  rules.version = "5.1.0";
  rules.common.insert(rules.common.begin(),
                      {one_present("submission_org"), one_present("submission_platform")});
  rules.closed_benchmarks = {"retinanet", "flux1",           "dlrm_dcnv2",  "llama31_8b",
                             "rgat",      "llama2_70b_lora", "llama31_405b"};
  rules.open_benchmarks = rules.closed_benchmarks;
  Keys keys = llama31_405b();
  // The checker computes the warm-up itself but only after it has seen the logged one.
  replace(keys, {.key = "opt_learning_rate_warmup_steps", .needs = "global_batch_size"});
  replace(keys, one_formula("opt_learning_rate_decay_steps", Test::decay_405b,
                            "opt_learning_rate_warmup_steps"));
  set_rules(rules, "llama31_405b", "closed", std::move(keys));
  set_rules(rules, "llama31_8b", "closed", llama31_8b());
  set_rules(rules, "llama31_8b", "open", open_any_loss());
  return rules;
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
          one("global_batch_size"),
          one_number("max_sequence_length", {128}),
          one_number("parameters", {kTuttiMiniParameters}),
          one_number("eval_samples", {64}),
          one_number("init_checkpoint_step", {0}),
          one_word("train_corpus_xxh3", {kTuttiMiniTraining}),
          one_word("validation_corpus_xxh3", {kTuttiMiniValidation}),
          reaches(0, kTuttiMiniTarget, "samples_count")};
}

Ruleset rules_tutti_1() {
  Ruleset rules = rules_5_1_0();
  rules.version = "tutti-1";
  rules.closed_benchmarks = {"tutti_mini"};
  rules.open_benchmarks = {};
  rules.benchmarks.clear();
  set_rules(rules, "tutti_mini", "closed", tutti_mini());
  return rules;
}

const std::vector<Ruleset>& all_rulesets() {
  static const std::vector<Ruleset> rulesets = {rules_3_0_0(),  rules_3_1_0(), rules_4_0_0(),
                                                rules_4_1_0(),  rules_5_0_0(), rules_5_1_0(),
                                                rules_tutti_1()};
  return rulesets;
}

}  // namespace

std::vector<std::string> ruleset_versions() {
  std::vector<std::string> versions;
  for (const Ruleset& ruleset : all_rulesets()) versions.push_back(ruleset.version);
  return versions;
}

const Ruleset& find_ruleset(std::string_view version) {
  for (const Ruleset& ruleset : all_rulesets()) {
    if (ruleset.version == version) return ruleset;
  }
  fail(ErrorKind::usage, "no ruleset '{}'; known: {}", version, join(ruleset_versions(), ", "));
}

const BenchmarkRules* find_rules(const Ruleset& ruleset, std::string_view benchmark,
                                 std::string_view division) {
  for (const BenchmarkRules& rules : ruleset.benchmarks) {
    if (rules.benchmark == benchmark && rules.division == division) return &rules;
  }
  return nullptr;
}

double allowed_init_minutes(std::string_view division) {
  if (division == "closed") return 30;
  return division == "open" ? 240 : 0;
}

int required_runs(std::string_view benchmark) {
  if (benchmark == "tutti_mini") return 5;
  if (benchmark == "gpt3" || benchmark == "llama31_405b") return 3;
  return benchmark == "llama2_70b_lora" || benchmark == "llama31_8b" ? 10 : 0;
}

}  // namespace tutti::mlperf
