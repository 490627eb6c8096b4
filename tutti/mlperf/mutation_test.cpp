// Single damages of a good log: each is found, under the right rule, and nothing crashes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tutti/mlperf/check_log.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Mutation {
  const char* name;
  std::function<void(SyntheticLog&)> change;
  const char* rule;
  bool warning = false;  // worth a warning only; the log still complies
  const char* benchmark = "llama31_8b";
  const char* ruleset = "";  // "": that of rules_of
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::vector<Mutation> mutations() {
  using Log = SyntheticLog;
  return {
      {"no_run_stop", [](Log& l) { l.erase("run_stop"); }, "key.missing"},
      {"no_run_start", [](Log& l) { l.erase("run_start"); }, "key.missing"},
      {"no_init_start", [](Log& l) { l.erase("init_start"); }, "key.missing"},
      {"no_init_stop", [](Log& l) { l.erase("init_stop"); }, "key.missing"},
      {"no_cache_clear", [](Log& l) { l.erase("cache_clear"); }, "key.missing"},
      {"no_division", [](Log& l) { l.erase("submission_division"); }, "key.missing"},
      {"no_benchmark", [](Log& l) { l.erase("submission_benchmark"); }, "key.missing"},
      {"no_organisation", [](Log& l) { l.erase("submission_org"); }, "key.missing"},
      {"no_batch_size", [](Log& l) { l.erase("global_batch_size"); }, "key.missing"},
      {"no_train_samples", [](Log& l) { l.erase("train_samples"); }, "key.missing"},
      {"no_learning_rate", [](Log& l) { l.erase("opt_base_learning_rate"); }, "key.missing"},
      {"no_lora_alpha", [](Log& l) { l.erase("lora_alpha"); }, "key.missing", false,
       "llama2_70b_lora"},
      {"no_status_4_0", [](Log& l) { l.erase("opt_adam_epsilon"); }, "key.missing", false, "gpt3"},
      {"no_accumulation", [](Log& l) { l.erase("gradient_accumulation_steps"); }, "key.missing"},
      {"empty_organisation", [](Log& l) { l.at("submission_org").value = ""; }, "key.value"},
      {"third_division", [](Log& l) { l.at("submission_division").value = "ajar"; }, "key.value"},
      {"other_optimizer", [](Log& l) { l.at("opt_name").value = "sgd"; }, "key.value"},
      {"beta_as_text", [](Log& l) { l.at("opt_adamw_beta_2").value = "0.95"; }, "key.value"},
      {"wrong_clip", [](Log& l) { l.at("opt_gradient_clip_norm").value = 0.3; }, "key.value"},
      {"wrong_epsilon", [](Log& l) { l.at("opt_adamw_epsilon").value = 1e-8; }, "key.value"},
      {"wrong_eval_samples", [](Log& l) { l.at("eval_samples").value = 1023; }, "key.value"},
      {"short_sequence", [](Log& l) { l.at("max_sequence_length").value = 4096; }, "key.value"},
      {"wrong_decay", [](Log& l) { l.at("opt_learning_rate_decay_steps").value = 1'200'000; },
       "key.value"},
      {"zero_accumulation", [](Log& l) { l.at("gradient_accumulation_steps").value = 0; },
       "key.value"},
      {"nan_clip", [](Log& l) { l.at("opt_gradient_clip_norm").value = kNan; }, "key.value"},
      {"rate_off_by_one_bit",
       [](Log& l) {
         Json& rate = l.at("opt_base_learning_rate").value;
         rate = std::nextafter(rate.get<double>(), 1.0);
       },
       "key.value", false, "llama31_405b"},
      {"wrong_rank", [](Log& l) { l.at("lora_rank").value = 8; }, "key.value", false,
       "llama2_70b_lora"},
      {"other_rate", [](Log& l) { l.at("opt_base_learning_rate").value = 4e-5; }, "key.value",
       false, "gpt3"},
      {"unknown_benchmark", [](Log& l) { l.at("submission_benchmark").value = "gpt5"; },
       "benchmark.unknown"},
      {"other_benchmark", [](Log& l) { l.at("submission_benchmark").value = "flux1"; },
       "benchmark.not_covered"},
      {"swapped_init", [](Log& l) { l.swap("init_stop", "run_start"); }, "order.sequence"},
      {"run_before_init", [](Log& l) { l.swap("init_start", "run_start"); }, "order.sequence"},
      {"stop_before_start", [](Log& l) { l.swap("run_start", "run_stop"); }, "order.sequence"},
      {"block_before_run", [](Log& l) { l.swap("block_start", "init_stop"); }, "order.sequence"},
      {"time_runs_back", [](Log& l) { l.at("run_stop").time_ms = 1.6e12; }, "order.sequence"},
      {"batch_after_rate", [](Log& l) { l.swap("global_batch_size", "opt_base_learning_rate"); },
       "order.needs", false, "llama31_405b"},
      {"decay_before_warmup",
       [](Log& l) { l.swap("opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps"); },
       "order.needs"},
      {"slow_init", [](Log& l) { l.at("init_stop").time_ms += 31 * 60e3; }, "order.init_time"},
      {"late_division", [](Log& l) { l.swap("submission_division", "run_stop"); },
       "order.init_time"},
      {"two_stops", [](Log& l) { l.repeat("run_stop"); }, "key.repeated"},
      {"two_starts", [](Log& l) { l.repeat("run_start"); }, "key.repeated"},
      {"two_batch_sizes",
       [](Log& l) {
         l.repeat("global_batch_size");
         l.at("global_batch_size", 1).value = 64;
       },
       "key.repeated"},
      {"same_batch_size_twice", [](Log& l) { l.repeat("global_batch_size"); }, "key.repeated",
       true},
      {"no_status", [](Log& l) { l.at("run_stop").metadata.erase("status"); }, "key.metadata"},
      {"uncounted_evaluation",
       [](Log& l) { l.at("eval_accuracy", 3).metadata.erase("samples_count"); }, "key.metadata"},
      {"uncounted_block", [](Log& l) { l.at("block_stop").metadata.erase("samples_count"); },
       "key.metadata"},
      {"negative_block", [](Log& l) { l.at("block_start").metadata["samples_count"] = -1; },
       "key.metadata"},
      {"empty_block", [](Log& l) { l.at("block_start").metadata["epoch_count"] = 0; },
       "key.metadata", false, "gpt3"},
      {"not_converged", [](Log& l) { l.at("eval_accuracy", 13).value = 3.4; },
       "target.not_reached"},
      {"nan_instead_of_target", [](Log& l) { l.at("eval_accuracy", 13).value = kNan; },
       "target.not_reached"},
      {"no_number_on_the_way", [](Log& l) { l.at("eval_accuracy", 2).value = nullptr; },
       "key.value"},
      {"text_on_the_way", [](Log& l) { l.at("eval_accuracy", 2).value = "3.4"; }, "key.value"},
      {"nan_on_the_way", [](Log& l) { l.at("eval_accuracy", 2).value = kNan; }, "target.not_finite",
       true},
      {"too_good", [](Log& l) { l.at("eval_accuracy", 13).value = 2.5; }, "target.not_reached",
       false, "gpt3"},
      // A number that others are tested against must be one.
      {"batch_as_text", [](Log& l) { l.at("global_batch_size").value = "1536"; }, "key.value",
       false, "llama31_405b"},
      {"batch_as_list", [](Log& l) { l.at("global_batch_size").value = {1536}; }, "key.value",
       false, "llama31_405b"},
      {"batch_is_null", [](Log& l) { l.at("global_batch_size").value = nullptr; }, "key.value"},
      {"batch_is_zero", [](Log& l) { l.at("global_batch_size").value = 0; }, "key.value", false,
       "llama2_70b_lora"},
      {"warmup_as_text", [](Log& l) { l.at("opt_learning_rate_warmup_steps").value = "128"; },
       "key.value"},
      {"warmup_is_null", [](Log& l) { l.at("opt_learning_rate_warmup_steps").value = nullptr; },
       "key.value"},
      {"metadata_as_text", [](Log& l) { l.at("eval_start").metadata = ""; }, "key.metadata"},
      {"metadata_not_needed", [](Log& l) { l.at("opt_name").metadata = ""; }, "log.metadata", true},
      {"placeholder", [](Log& l) { l.at("submission_org").value = "SUBMISSION_ORG_PLACEHOLDER"; },
       "key.placeholder", true},
      // 6.0.0 and 6.1.0
      {"oss_missed", [](Log& l) { l.at("eval_accuracy", 13).value = 3.35; }, "target.not_reached",
       false, "gpt_oss_20b", "6.0.0"},
      {"oss_before_its_round", [](Log&) {}, "benchmark.unknown", false, "gpt_oss_20b", "5.1.0"},
      {"small_deepseek", [](Log& l) { l.at("global_batch_size").value = 15'359; }, "key.value",
       false, "deepseekv3_671b", "6.0.0"},
      {"deepseek_rate", [](Log& l) { l.at("opt_base_learning_rate").value = 2.41e-5; }, "key.value",
       false, "deepseekv3_671b", "6.0.0"},
      {"deepseek_without_aux_loss", [](Log& l) { l.erase("moe_aux_loss_coeff"); }, "key.missing",
       false, "deepseekv3_671b", "6.0.0"},
      {"deepseek_warmup", [](Log& l) { l.at("opt_learning_rate_warmup_steps").value = 5; },
       "key.value", false, "deepseekv3_671b", "6.0.0"},
      {"deepseek_first_evaluation",
       [](Log& l) { l.at("eval_accuracy").metadata["samples_count"] = 42 * 16'384; },
       "order.first_evaluation", false, "deepseekv3_671b", "6.1.0"},
      {"undisclosed_precision", [](Log& l) { l.erase("lowest_numerical_precision_in_comm"); },
       "key.missing", false, "deepseekv3_671b", "6.1.0"},
      {"zero_parallelism", [](Log& l) { l.at("tensor_parallelism").value = 0; }, "key.value", false,
       "deepseekv3_671b", "6.1.0"},
      {"no_config", [](Log& l) { l.at("config_filename").value = ""; }, "key.value", false,
       "deepseekv3_671b", "6.1.0"},
      {"bf16_is_no_word", [](Log& l) { l.at("lowest_numerical_precision_in_attn").value = "bf16"; },
       "key.value", false, "deepseekv3_671b", "6.0.0"},
      {"half_a_parallelism", [](Log& l) { l.at("expert_parallelism").value = 1.5; }, "key.value",
       false, "deepseekv3_671b", "6.0.0"},
      {"no_405b_in_6_1", [](Log&) {}, "benchmark.unknown", false, "llama31_405b", "6.1.0"},
  };
}

// NaN cannot be dumped as JSON; the log writes it as Python does.
std::string text_with_nan(const SyntheticLog& log) {
  std::string text;
  for (const LogLine& line : log.lines) {
    std::string record = SyntheticLog::record_text(line);
    if (line.value.is_number_float() && std::isnan(line.value.get<double>())) {
      replace_all(record, R"("value":null)", R"("value":NaN)");
    }
    text += record + "\n";
  }
  return text;
}

SyntheticLog good(const std::string& benchmark) {
  SyntheticRun run;
  run.benchmark = benchmark;
  if (benchmark == "gpt3" || benchmark == "llama31_405b") run.global_batch = 1536;
  if (benchmark == "deepseekv3_671b") run.global_batch = 16'384;
  if (benchmark == "deepseekv3_671b") run.samples_to_target = 14 * 16'384;
  if (benchmark == "gpt3") run.samples_to_target = 14 * 24'576;
  SyntheticLog log = good_log(run);
  if (benchmark != "deepseekv3_671b") return log;
  // Disclosed, and evaluated first where 6.1.0 wants it.
  const auto at = static_cast<std::ptrdiff_t>(log.index("seed"));
  std::vector<LogLine> more;
  const auto add = [&](const std::string& key, Json value) {
    more.push_back({key, std::move(value), Json{{"file", "train.py"}, {"lineno", 1}},
                    log.lines[static_cast<size_t>(at)].time_ms});
  };
  for (const char* part : {"linear", "attn", "comm"}) {
    add(std::string("lowest_numerical_precision_in_") + part, "bfloat16");
  }
  for (const char* axis : {"tensor", "pipeline", "context", "expert"}) {
    add(std::string(axis) + "_parallelism", 2);
  }
  add("micro_batch_size", 1);
  add("config_filename", "recipe.yaml");
  log.lines.insert(log.lines.begin() + at, more.begin(), more.end());
  log.at("eval_accuracy").metadata["samples_count"] = 43 * 16'384;
  return log;
}

const Ruleset& rules_of(const Mutation& mutation) {
  if (mutation.ruleset[0] != '\0') return find_ruleset(mutation.ruleset);
  return find_ruleset(std::string(mutation.benchmark) == "gpt3" ? "4.1.0" : "5.1.0");
}

// The rules by which the log is good before it is damaged.
const Ruleset& own_rules_of(const Mutation& mutation) {
  const std::string benchmark = mutation.benchmark;
  if (benchmark == "gpt_oss_20b") return find_ruleset("6.0.0");
  if (benchmark == "llama31_405b") return find_ruleset("5.1.0");
  return rules_of(mutation);
}

class Mutated : public testing::TestWithParam<Mutation> {};

TEST_P(Mutated, IsFoundUnderItsRule) {
  const Mutation& mutation = GetParam();
  SyntheticLog log = good(mutation.benchmark);
  const LogCheck before = check_log_text(log.text(), "log", own_rules_of(mutation));
  ASSERT_TRUE(before.findings.empty()) << listed(before.findings);
  mutation.change(log);
  const LogCheck check = check_log_text(text_with_nan(log), "log", rules_of(mutation));
  EXPECT_TRUE(has(check.findings, mutation.rule, mutation.warning)) << listed(check.findings);
  EXPECT_EQ(check.compliant, mutation.warning) << listed(check.findings);
}

INSTANTIATE_TEST_SUITE_P(Log, Mutated, testing::ValuesIn(mutations()),
                         [](const auto& test) { return std::string(test.param.name); });

LogCheck check_8b(const std::string& text) {
  return check_log_text(text, "log", find_ruleset("5.1.0"));
}

TEST(MutatedBytes, CutAnywhere) {
  const std::string text = good("llama31_8b").text();
  // Records after the evaluation that reached the target may be missing; nothing else.
  const size_t stop = text.rfind(":::MLLOG");
  for (size_t size = 0; size < stop; size += 97) {
    EXPECT_FALSE(check_8b(text.substr(0, size)).compliant) << size;
  }
  const LogCheck cut = check_8b(text.substr(0, stop + 40));
  EXPECT_TRUE(has(cut.findings, "log.cut", false)) << listed(cut.findings);
  EXPECT_TRUE(has(check_8b("").findings, "log.empty", false));
}

TEST(MutatedBytes, NotUtf8) {
  std::string text = good("llama31_8b").text();
  replace_all(text, "Example", "Ex\xe4mple");
  const LogCheck check = check_8b(text);
  EXPECT_TRUE(check.compliant);
  EXPECT_TRUE(has(check.findings, "log.encoding", true));
}

TEST(MutatedBytes, AHexadecimalTimeIsNoTime) {
  std::string text = good("llama31_8b").text();
  const size_t at = text.find("\"time_ms\":");
  const size_t end = text.find(',', at);
  text.replace(at, end - at, "\"time_ms\":\"0x18bcfe568\"");
  EXPECT_TRUE(has(check_8b(text).findings, "log.record", false));
}

TEST(MutatedBytes, BrokenRecord) {
  std::string text = good("llama31_8b").text();
  text.insert(text.find("\"metadata\""), "x");
  EXPECT_TRUE(has(check_8b(text).findings, "log.record", false));
}

TEST(MutatedBytes, HugeLines) {
  const std::string text = good("llama31_8b").text();
  std::string huge;
  huge.assign(100'000'000, 'x');
  EXPECT_TRUE(check_8b(huge + text).compliant);
  const LogCheck check = check_8b(":::MLLOG {\"key\": \"" + huge + "\n" + text);
  EXPECT_TRUE(has(check.findings, "log.record", false));
}

TEST(MutatedBytes, ManyProblemsAreCounted) {
  std::string text = good("llama31_8b").text();
  for (int i = 0; i < 1000; ++i) text += ":::MLLOG {\n";
  const LogCheck check = check_8b(text);
  EXPECT_EQ(check.findings.size(), 21U);
  EXPECT_NE(listed(check.findings).find("980 more like these"), std::string::npos);
}

}  // namespace
}  // namespace tutti::mlperf
