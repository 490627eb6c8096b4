// Damages of a whole result: each is found, under the right rule.

#include <gtest/gtest.h>

#include <functional>

#include "tutti/mlperf/compliance.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

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
      {"seed_without_a_location", [](Logs& l) { l[4].at("seed").metadata.erase("lineno"); },
       "seed.place"},
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
