#include "tutti/mlperf/ruleset.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/mlperf/key_rules.h"

namespace tutti::mlperf {
namespace {

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
  set_rules(rules, "llama2_70b_lora", "open", open_any_loss("epoch_num"));
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
  set_rules(rules, "llama31_8b", "open", open_any_loss("epoch_num"));
  return rules;
}

Ruleset rules_6_0_0() {
  Ruleset rules = rules_5_1_0();
  rules.version = "6.0.0";
  for (KeyRule& rule : disclosure(Occurs::any)) replace(rules.common, std::move(rule));
  rules.closed_benchmarks = {"flux1",        "dlrm_dcnv2",  "llama31_8b",     "llama2_70b_lora",
                             "llama31_405b", "gpt_oss_20b", "deepseekv3_671b"};
  rules.open_benchmarks = rules.closed_benchmarks;
  Keys open_405b = open_llama31_405b();
  replace(open_405b, reaches(0, 5.6, "samples_count"));
  set_rules(rules, "llama31_405b", "open", std::move(open_405b));
  set_rules(rules, "llama31_8b", "open", open_any_loss("samples_count"));
  set_rules(rules, "llama2_70b_lora", "open", open_any_loss("samples_count"));
  set_rules(rules, "gpt_oss_20b", "closed", gpt_oss_20b());
  set_rules(rules, "gpt_oss_20b", "open", open_gpt_oss_20b());
  set_rules(rules, "deepseekv3_671b", "closed", deepseekv3_671b());
  set_rules(rules, "deepseekv3_671b", "open", open_deepseekv3_671b());
  return rules;
}

Ruleset rules_6_1_0() {
  Ruleset rules = rules_6_0_0();
  rules.version = "6.1.0";
  for (KeyRule& rule : disclosure(Occurs::exactly_one)) replace(rules.common, std::move(rule));
  rules.closed_benchmarks = {"flux1",       "llama31_8b",      "llama2_70b_lora",
                             "gpt_oss_20b", "deepseekv3_671b", "qwen35_397b_grpo",
                             "dlrmv4"};
  rules.open_benchmarks = rules.closed_benchmarks;
  drop_benchmark(rules, "llama31_405b");
  Keys keys = deepseekv3_671b();
  KeyRule first = reaches(0, 3.6, "samples_count");
  first.needs = "global_batch_size";
  first.first_steps = 42;
  first.first_samples = 24'576;
  replace(keys, std::move(first));
  set_rules(rules, "deepseekv3_671b", "closed", std::move(keys));
  return rules;
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
  static const std::vector<Ruleset> rulesets = {rules_3_0_0(), rules_3_1_0(), rules_4_0_0(),
                                                rules_4_1_0(), rules_5_0_0(), rules_5_1_0(),
                                                rules_6_0_0(), rules_6_1_0(), rules_tutti_1()};
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
  for (const char* name : {"gpt3", "llama31_405b", "deepseekv3_671b"}) {
    if (benchmark == name) return 3;
  }
  for (const char* name : {"llama2_70b_lora", "llama31_8b", "gpt_oss_20b"}) {
    if (benchmark == name) return 10;
  }
  return 0;
}

}  // namespace tutti::mlperf
