// Published results, when they are beside the repository (../shared/mlperf): the verdicts of their
// rounds, and the published minutes.

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/mlperf/compliance.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

constexpr const char* kShared = TUTTI_SOURCE_DIR "/../shared/mlperf";

struct Published {
  const char* path;
  const char* ruleset;
  double minutes;  // published, to three digits
  double raw_minutes;
  double samples;
  double scale;
  const char* warnings = "";  // rules, each once
  size_t notes = 0;
};

// Minutes: training_results_v3.1, v4.0, v4.1, v6.0 of mlcommons. The logs of v6.0 are condensed
// (fewer step times and cache_clear lines), which the score does not show.
const Published kPublished[] = {
    {"v3.1/Azure+NVIDIA/ND_H100_v5_n1344_pytorch/gpt3", "3.1.0", 4.008, 4.008, 591'360, 1,
     "key.placeholder"},
    {"v4.0/Google/cloud-tpu-v5p-1024-maxtext/gpt3", "4.0.0", 114.794, 114.794, 589'824, 1},
    {"v4.0/Intel-HabanaLabs/HLS-Gaudi2-N128-PT/gpt3", "4.0.0", 66.906, 66.906, 614'400, 1},
    {"v4.0/NVIDIA/eos_n64_ngc24.04_nemo/gpt3", "4.0.0", 50.728, 50.728, 582'912, 1},
    {"v4.0/NVIDIA/eos_ngc24.04_nemo/llama2_70b_lora", "4.0.0", 28.163, 28.068, 3168, 1.003367},
    {"v4.0/NVIDIA/h200_ngc24.04_nemo/llama2_70b_lora", "4.0.0", 24.689, 24.689, 3216, 1},
    {"v4.1/Azure/ND_H200_v5_n64_nemo/llama2_70b_lora", "4.1.0", 1.609, 1.609, 7440, 1},
    {"v4.1/Oracle/512xBM.GPU.H100.8/llama2_70b_lora", "4.1.0", 2.065, 2.065, 8976, 1,
     "key.placeholder system.availability"},
    {"v6.0/Azure/2048xAzure_GB200/llama31_405b", "6.0.0", 7.0686, 7.0686, 331'776, 1,
     "key.placeholder system.availability rcp.below_smallest", 1},
};

class PublishedResult : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    if (!posix_file_system().is_directory(kShared)) GTEST_SKIP() << "skipped: no shared data";
    benchmarks_ = catalog::load_benchmarks(posix_file_system(), TUTTI_SOURCE_DIR "/catalog");
    path_ = join_path(kShared, GetParam().path);
  }

  std::vector<catalog::Benchmark> benchmarks_;
  std::string path_;
};

TEST_P(PublishedResult, CompliesAndScoresAsPublished) {
  FileSystem& files = posix_file_system();
  const Ruleset& ruleset = find_ruleset(GetParam().ruleset);
  ComplianceCheck check;
  check_path(files, path_, ruleset, benchmarks_, check);
  EXPECT_TRUE(compliant(check.findings)) << format_findings(check.findings);
  std::vector<std::string> warnings;
  for (const Finding& finding : check.findings) {
    if (std::find(warnings.begin(), warnings.end(), finding.rule) == warnings.end()) {
      warnings.push_back(finding.rule);
    }
  }
  EXPECT_EQ(join(warnings, " "), GetParam().warnings) << format_findings(check.findings);
  const Score score = score_result(files, find_results(files, path_)[0], ruleset, benchmarks_);
  ASSERT_TRUE(score.minutes);
  EXPECT_NEAR(*score.minutes, GetParam().minutes, 0.0006);
  EXPECT_NEAR(*score.raw_minutes, GetParam().raw_minutes, 0.0006);
  EXPECT_EQ(*score.samples_to_target, GetParam().samples);
  EXPECT_NEAR(score.scale, GetParam().scale, 1e-6);
  // scaling.json and the recomputed test agree.
  EXPECT_EQ(score.notes.size(), GetParam().notes) << join(score.notes, "; ");
  EXPECT_TRUE(score.reference.pass);
  EXPECT_EQ(ruleset_of_round(score.round), GetParam().ruleset);
}

// The record of June 16, 2026 (docs/mlperf_record.md): steady steps as logged, and how far its own
// runs are apart.
TEST(PublishedRecord, StepsOfTheRuns) {
  FileSystem& files = posix_file_system();
  const std::string path = join_path(kShared, "v6.0/Azure/2048xAzure_GB200/llama31_405b");
  if (!files.is_directory(path)) GTEST_SKIP() << "skipped: no shared data";
  const Score score =
      score_result(files, find_results(files, path)[0], find_ruleset("6.0.0"), benchmarks());
  const double minutes[] = {7.2115, 6.6418, 7.0686};
  const double steps[] = {1.2951, 1.2716, 1.2701};
  ASSERT_EQ(score.runs.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const ScoredRun& run = score.runs[i];
    EXPECT_NEAR(run.minutes, minutes[i], 1e-4);
    ASSERT_TRUE(run.timeline && run.timeline->steps_timed);
    EXPECT_NEAR(run.timeline->step_seconds, steps[i], 1e-3) << i;
    // 3 or 4 evaluations of 2.9 s; what is left is no more than a second or two.
    EXPECT_NEAR(run.timeline->evaluation_seconds / run.timeline->evaluations, 2.9, 0.1);
    EXPECT_NEAR(run.timeline->startup_seconds, 1, 2);
  }
}

// The logs of another round: rules that changed are noticed.
TEST_P(PublishedResult, DamagedLogsAreFound) {
  FileSystem& files = posix_file_system();
  const std::string log = join_path(path_, "result_0.txt");
  const std::string text = read_file(files, log);
  const Ruleset& ruleset = find_ruleset(GetParam().ruleset);
  ASSERT_TRUE(check_log_text(text, log, ruleset).compliant);
  const auto without = [&](const std::string& key) {
    std::string rest;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      const std::string line = text.substr(begin, end - begin);
      if (line.find("\"key\": \"" + key + "\"") == std::string::npos) rest += line;
      begin = end;
    }
    return rest;
  };
  for (const char* key :
       {"run_start", "run_stop", "init_stop", "init_start", "eval_accuracy", "submission_benchmark",
        "submission_division", "global_batch_size", "train_samples", "eval_samples",
        "opt_base_learning_rate", "cache_clear", "gradient_accumulation_steps"}) {
    EXPECT_FALSE(check_log_text(without(key), log, ruleset).compliant) << key;
  }
  const size_t stop = text.rfind("\"run_stop\"");
  EXPECT_FALSE(check_log_text(text.substr(0, stop), log, ruleset).compliant);
}

INSTANTIATE_TEST_SUITE_P(Published, PublishedResult, testing::ValuesIn(kPublished),
                         [](const auto& test) { return std::to_string(test.index); });

}  // namespace
}  // namespace tutti::mlperf
