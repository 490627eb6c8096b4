// Single damages of a good log: each is found, under the right rule, and nothing crashes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tutti/mlperf/check_log.h"
#include "tutti/mlperf/compliance.h"
#include "tutti/mlperf/test_support.h"
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
  if (benchmark == "gpt3") run.samples_to_target = 14 * 24'576;
  return good_log(run);
}

const Ruleset& rules_of(const std::string& benchmark) {
  return find_ruleset(benchmark == "gpt3" ? "4.1.0" : "5.1.0");
}

bool has(const std::vector<Finding>& findings, const std::string& rule, bool warning) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
    return f.rule == rule && f.warning == warning && !f.message.empty() && !f.remedy.empty();
  });
}

std::string listed(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += format_finding(finding) + "\n";
  return text;
}

class Mutated : public testing::TestWithParam<Mutation> {};

TEST_P(Mutated, IsFoundUnderItsRule) {
  const Mutation& mutation = GetParam();
  SyntheticLog log = good(mutation.benchmark);
  const LogCheck before = check_log_text(log.text(), "log", rules_of(mutation.benchmark));
  ASSERT_TRUE(before.findings.empty()) << listed(before.findings);
  mutation.change(log);
  const LogCheck check = check_log_text(text_with_nan(log), "log", rules_of(mutation.benchmark));
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

// Damages of a whole result.

struct ResultMutation {
  const char* name;
  std::function<void(std::vector<SyntheticLog>&)> change;
  const char* rule;
  bool warning = false;
};

std::vector<ResultMutation> result_mutations() {
  using Logs = std::vector<SyntheticLog>;
  return {
      {"seed_reused", [](Logs& l) { l[7].at("seed").value = l[2].at("seed").value; },
       "seed.reused"},
      {"no_seed", [](Logs& l) { l[4].erase("seed"); }, "seed.missing"},
      {"seed_no_integer", [](Logs& l) { l[4].at("seed").value = "lucky"; }, "seed.value"},
      {"two_seeds",
       [](Logs& l) {
         l[4].repeat("seed");
         l[4].at("seed", 1).value = 99;
       },
       "seed.many", true},
      {"nine_runs", [](Logs& l) { l.pop_back(); }, "runs.count"},
      {"eleven_runs",
       [](Logs& l) {
         SyntheticRun run;
         run.seed = 77;
         l.push_back(good_log(run));
       },
       "runs.count"},
      {"one_failed", [](Logs& l) { l[0].erase("run_stop"); }, "runs.one_dropped", true},
      {"two_failed",
       [](Logs& l) {
         l[0].erase("run_stop");
         l[5].erase("run_stop");
       },
       "runs.failed"},
      {"two_batch_sizes", [](Logs& l) { l[3].at("global_batch_size").value = 64; }, "runs.mixed"},
      {"converged_too_fast",
       [](Logs& l) {
         for (size_t i = 0; i < l.size(); ++i) {
           SyntheticRun run;
           run.seed = static_cast<int64_t>(i);
           run.samples_to_target = 11 * 12'288;
           l[i] = good_log(run);
         }
       },
       "rcp.too_fast"},
      {"batch_beyond_the_reference",
       [](Logs& l) {
         for (SyntheticLog& log : l) log.at("global_batch_size").value = 1024;
       },
       "rcp.missing"},
  };
}

std::vector<SyntheticLog> good_result() {
  std::vector<SyntheticLog> logs;
  for (int64_t i = 0; i < 10; ++i) {
    SyntheticRun run;
    run.seed = i;
    run.samples_to_target = (15 + i % 2) * 12'288.0;
    logs.push_back(good_log(run));
  }
  return logs;
}

std::vector<Finding> check_logs(const std::vector<SyntheticLog>& logs) {
  MemoryFileSystem files;
  for (size_t i = 0; i < logs.size(); ++i) {
    write_file(files, fmt::format("sub/results/box/llama31_8b/result_{}.txt", i), logs[i].text());
  }
  const auto benchmarks =
      catalog::load_benchmarks(posix_file_system(), TUTTI_SOURCE_DIR "/catalog");
  for (const ResultFolder& folder : find_results(files, "sub")) {
    const Score score = score_result(files, folder, find_ruleset("5.1.0"), benchmarks);
    EXPECT_EQ(score.runs.size(), logs.size());
  }
  ComplianceCheck check;
  check_path(files, "sub/results/box/llama31_8b", find_ruleset("5.1.0"), benchmarks, check);
  // The system description is not what these tests are about.
  std::vector<Finding> rest;
  for (const Finding& finding : check.findings) {
    if (finding.rule != "layout.system") rest.push_back(finding);
  }
  return rest;
}

class MutatedResult : public testing::TestWithParam<ResultMutation> {};

TEST_P(MutatedResult, IsFoundUnderItsRule) {
  std::vector<SyntheticLog> logs = good_result();
  GetParam().change(logs);
  const std::vector<Finding> findings = check_logs(logs);
  EXPECT_TRUE(has(findings, GetParam().rule, GetParam().warning)) << listed(findings);
  EXPECT_EQ(compliant(findings), GetParam().warning) << listed(findings);
}

INSTANTIATE_TEST_SUITE_P(Result, MutatedResult, testing::ValuesIn(result_mutations()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(MutatedResult, TheGoodOneIsGood) {
  const std::vector<Finding> findings = check_logs(good_result());
  EXPECT_TRUE(findings.empty()) << listed(findings);
}

}  // namespace
}  // namespace tutti::mlperf
