#include "tutti/mlperf/ruleset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/mlperf/value_rule.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

const KeyRule* rule_of(const std::vector<KeyRule>& rules, const std::string& key) {
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const KeyRule& r) { return r.key == key; });
  return found == rules.end() ? nullptr : &*found;
}

const KeyRule* closed_rule(const char* version, const char* benchmark, const char* key) {
  const BenchmarkRules* rules = find_rules(find_ruleset(version), benchmark, "closed");
  return rules == nullptr ? nullptr : rule_of(rules->keys, key);
}

TEST(Ruleset, VersionsInheritAndChange) {
  EXPECT_EQ(ruleset_versions(),
            (std::vector<std::string>{"3.0.0", "3.1.0", "4.0.0", "4.1.0", "5.0.0", "5.1.0", "6.0.0",
                                      "6.1.0", "tutti-1"}));
  EXPECT_THROW(find_ruleset("2.1.0"), Error);
  for (const std::string& version : ruleset_versions()) {
    if (version == "tutti-1") continue;
    const Ruleset& ruleset = find_ruleset(version);
    EXPECT_EQ(ruleset.version, version);
    EXPECT_EQ(rule_of(ruleset.common, "submission_status") != nullptr, version < "4.1");
    EXPECT_EQ(rule_of(ruleset.common, "submission_org") != nullptr, version != "5.0.0");
    EXPECT_EQ(ruleset.checks_availability, version >= "4.1");
    EXPECT_EQ(find_rules(ruleset, "gpt3", "closed") != nullptr, version < "5");
    EXPECT_EQ(find_rules(ruleset, "gpt3", "open") != nullptr, version >= "4" && version < "5");
    EXPECT_EQ(find_rules(ruleset, "llama2_70b_lora", "closed") != nullptr, version >= "4");
    EXPECT_EQ(find_rules(ruleset, "llama31_405b", "closed") != nullptr,
              version >= "5" && version < "6.1");
    EXPECT_EQ(find_rules(ruleset, "gpt_oss_20b", "closed") != nullptr, version >= "6");
    EXPECT_EQ(find_rules(ruleset, "deepseekv3_671b", "open") != nullptr, version >= "6");
    EXPECT_EQ(find_rules(ruleset, "llama31_8b", "closed") != nullptr, version >= "5.1");
    // What has rules is a benchmark of the ruleset.
    for (const BenchmarkRules& rules : ruleset.benchmarks) {
      const auto& names =
          rules.division == "closed" ? ruleset.closed_benchmarks : ruleset.open_benchmarks;
      EXPECT_NE(std::find(names.begin(), names.end(), rules.benchmark), names.end());
      EXPECT_GT(required_runs(rules.benchmark), 0);
      EXPECT_NE(rule_of(rules.keys, "eval_accuracy"), nullptr);
    }
  }
  EXPECT_EQ(closed_rule("5.0.0", "llama31_405b", "opt_learning_rate_decay_steps")->test,
            mlperf::Test::any);
  EXPECT_EQ(closed_rule("5.1.0", "llama31_405b", "opt_learning_rate_decay_steps")->test,
            mlperf::Test::decay_405b);
}

// The corpus and the target of Tutti's own benchmark are rules: they are those of the catalog.
TEST(Ruleset, TuttiMiniIsTheCatalogs) {
  const auto all = catalog::load_benchmarks(posix_file_system(), TUTTI_SOURCE_DIR "/catalog");
  const catalog::Benchmark* mini = catalog::find_benchmark(all, "tutti_mini");
  ASSERT_NE(mini, nullptr);
  const auto rule = [](const char* key) { return *closed_rule("tutti-1", "tutti_mini", key); };
  EXPECT_EQ(rule("train_corpus_xxh3").words, std::vector<std::string>{mini->train_corpus_xxh3});
  EXPECT_EQ(rule("validation_corpus_xxh3").words,
            std::vector<std::string>{mini->validation_corpus_xxh3});
  EXPECT_EQ(rule("eval_accuracy").at_most, mini->target);
  EXPECT_EQ(rule("max_sequence_length").numbers[0], static_cast<double>(mini->sequence_tokens));
  EXPECT_EQ(rule("eval_samples").numbers[0], static_cast<double>(mini->eval_samples));
  EXPECT_EQ(rule("parameters").numbers[0], mini->parameters);
  EXPECT_EQ(required_runs("tutti_mini"), mini->runs_per_result);
  EXPECT_EQ(find_rules(find_ruleset("5.1.0"), "tutti_mini", "closed"), nullptr);
  EXPECT_EQ(find_rules(find_ruleset("tutti-1"), "llama31_8b", "closed"), nullptr);
}

// The rate must be computed as 8e-5 * GBS / 1152; another order or rounding is another double.
TEST(Ruleset, RateOf405BIsComparedExactly) {
  const KeyRule& rule = *closed_rule("5.1.0", "llama31_405b", "opt_base_learning_rate");
  int other_order_fails = 0;
  for (const double batch : {1008.0, 1152.0, 1248.0, 1536.0, 2304.0, 4608.0, 6912.0, 9216.0}) {
    const RuleContext context{batch, {}};
    EXPECT_EQ(wanted_instead(rule, 8e-5 * batch / 1152, context), "") << batch;
    if (!wanted_instead(rule, 8e-5 * (batch / 1152), context).empty()) ++other_order_fails;
    EXPECT_NE(wanted_instead(rule, 9e-5 * batch / 1152, context), "") << batch;
  }
  EXPECT_GT(other_order_fails, 0);
}

TEST(Ruleset, StepsOf405BShrinkWithTheBatch) {
  const KeyRule& rule = *closed_rule("5.1.0", "llama31_405b", "opt_learning_rate_decay_steps");
  EXPECT_EQ(wanted_instead(rule, 1'192'000, {1152.0, {}}), "");
  EXPECT_EQ(wanted_instead(rule, 600'000 - 4000, {2304.0, {}}), "");
  EXPECT_EQ(wanted_instead(rule, 1'192'000, {2304.0, {}}), "596000");
}

TEST(Ruleset, RateOfDeepseekFollowsTheRootOfTheBatch) {
  const KeyRule& rule = *closed_rule("6.0.0", "deepseekv3_671b", "opt_base_learning_rate");
  EXPECT_EQ(wanted_instead(rule, 2.4e-5, {16'384.0, {}}), "");
  EXPECT_EQ(wanted_instead(rule, 2.3238e-5, {15'360.0, {}}), "");  // as the references round it
  EXPECT_NE(wanted_instead(rule, 2.4e-5, {15'360.0, {}}), "");
  EXPECT_EQ(lacks_number(rule, {}), "global_batch_size");
  const KeyRule& decay = *closed_rule("6.0.0", "deepseekv3_671b", "opt_learning_rate_decay_steps");
  EXPECT_EQ(wanted_instead(decay, 11'996, {{}, 4.0}), "");
  EXPECT_EQ(lacks_number(decay, {16'384.0, {}}), "opt_learning_rate_warmup_steps");
}

TEST(Ruleset, FirstEvaluationOfDeepseekIsFixedFrom61On) {
  const auto first = [](const char* version, double batch) {
    return first_samples_count(*closed_rule(version, "deepseekv3_671b", "eval_accuracy"),
                               {batch, {}});
  };
  EXPECT_FALSE(first("6.0.0", 16'384));
  EXPECT_EQ(first("6.1.0", 15'360), 43 * 15'360);
  EXPECT_EQ(first("6.1.0", 24'576), 43 * 24'576);
  EXPECT_EQ(first("6.1.0", 24'577), 42 * 24'577);
}

TEST(Ruleset, IntegersAreNear) {
  const KeyRule& optional = *rule_of(find_ruleset("6.0.0").common, "tensor_parallelism");
  const KeyRule& required = *rule_of(find_ruleset("6.1.0").common, "tensor_parallelism");
  EXPECT_EQ(optional.occurs, Occurs::any);
  EXPECT_EQ(required.occurs, Occurs::exactly_one);
  EXPECT_EQ(wanted_instead(optional, 0, {}), "");
  EXPECT_EQ(wanted_instead(optional, 8.000001, {}), "");
  EXPECT_NE(wanted_instead(optional, 8.1, {}), "");
  EXPECT_NE(wanted_instead(optional, "8", {}), "");
  EXPECT_NE(wanted_instead(optional, true, {}), "");
  EXPECT_NE(wanted_instead(required, 0, {}), "");
  EXPECT_EQ(wanted_instead(required, 1, {}), "");
}

TEST(Ruleset, Targets) {
  const auto reaches = [](const char* version, const char* benchmark, double value) {
    return reaches_target(*closed_rule(version, benchmark, "eval_accuracy"), value);
  };
  EXPECT_TRUE(reaches("4.0.0", "gpt3", 2.69));
  EXPECT_FALSE(reaches("4.0.0", "gpt3", 2.6901));
  EXPECT_FALSE(reaches("4.0.0", "gpt3", 2.6));
  EXPECT_TRUE(reaches("5.1.0", "llama2_70b_lora", 0.925));
  EXPECT_FALSE(reaches("5.1.0", "llama31_8b", 3.31));
  EXPECT_TRUE(reaches("5.0.0", "llama31_405b", 5.6));
  EXPECT_EQ(allowed_init_minutes("closed"), 30);
  EXPECT_EQ(allowed_init_minutes("open"), 240);
}

}  // namespace
}  // namespace tutti::mlperf
