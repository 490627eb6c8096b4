// The forms a rule takes, and the keys of each benchmark: what the rulesets are built from.
//
// Sources: mlcommons/logging, compliance_checker/training_<version>/{closed,open}_<benchmark>.yaml.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/mlperf/ruleset.h"

namespace tutti::mlperf {

using Words = std::vector<std::string>;
using Keys = std::vector<KeyRule>;

KeyRule one(std::string key);          // exactly once, any value
KeyRule one_present(std::string key);  // anything but ""
KeyRule one_word(std::string key, Words words);
KeyRule one_number(std::string key, std::vector<double> numbers);
KeyRule one_positive(std::string key);
KeyRule one_formula(std::string key, Test test, std::string needs);
// opt_learning_rate_decay_steps of a schedule of `steps`, warm-up included.
KeyRule decay_after_warmup(double steps);
KeyRule some(std::string key);  // once or more
KeyRule marked(std::string key, Words metadata);

// eval_accuracy: every one carries `progress`, and one is above `above` and at most `at_most`.
KeyRule reaches(double above, double at_most, std::string progress);

// Replaces the rule of the same key, or adds one.
void replace(Keys& keys, KeyRule rule);
void remove(Keys& keys, std::string_view key);
Keys with(Keys keys, const Keys& more);

// Benchmarks, closed division unless named open.
Keys gpt3();
Keys llama31_405b();
Keys open_llama31_405b();
Keys llama31_8b();
Keys llama2_70b_lora();
Keys gpt_oss_20b();
Keys open_gpt_oss_20b();
Keys deepseekv3_671b();
Keys open_deepseekv3_671b();
Keys open_any_loss(const std::string& progress);
Keys tutti_mini();

// What a run discloses of precision and layout: optional in 6.0.0, required from 6.1.0 on.
Keys disclosure(Occurs occurs);

}  // namespace tutti::mlperf
