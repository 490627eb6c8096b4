#include "tutti/mlperf/run_set.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/mlperf/testing/test_support.h"

namespace tutti::mlperf {
namespace {

constexpr const char* kRecipe = "train:\n  steps: 100\n  seed: 4\nbatch:\n  global: 8\n";

std::string error_of(const RunSet& stored, const RunSet& wanted) {
  try {
    check_same_set(stored, wanted, "out/runs.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RunSet, SeedsAreDistinctAndInOrder) {
  const RunSet set = plan_runs(kRecipe, 3, 7);
  ASSERT_EQ(set.runs.size(), 3U);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(set.runs[i].seed, 7 + i);
  EXPECT_EQ(set.ended(), 0);
}

TEST(RunSet, SurvivesItsFile) {
  MemoryFileSystem files;
  files.create_directories("out");
  EXPECT_FALSE(load_run_set(files, "out/runs.json").has_value());
  RunSet set = plan_runs(kRecipe, 4, UINT64_MAX - 3);
  set.version = "0.1";
  set.executable_hash = "ab";
  set.runs[0] = {9, RunProgress::done, 0, "t0", "t1", 1.25, true, ""};
  set.runs[1] = {10, RunProgress::failed, 93, "t2", "t3", std::nullopt, false, "diverged"};
  set.runs[2].progress = RunProgress::done;
  set.attempts.push_back({3, "out/interrupted/run_3-1", "t4", "SIGINT"});
  save_run_set(files, "out/runs.json", set);
  const auto read = load_run_set(files, "out/runs.json");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(to_json(*read), to_json(set));
  EXPECT_EQ(read->ended(), 3);
  EXPECT_EQ(read->missed(), 2);  // one failed, one missed the target
  write_file(files, "bad.json", R"({"recipe": "", "version": "", "executable_hash": "",
                                    "runs": [{"seed": 1}], "attempts": []})");
  EXPECT_THROW(load_run_set(files, "bad.json"), Error);
}

// Of an error message that was cut within a letter.
TEST(RunSet, InvalidBytesAreReplaced) {
  MemoryFileSystem files;
  RunSet set = plan_runs(kRecipe, 1, 7);
  set.runs[0].reason = "no space on 'caf\xc3";
  save_run_set(files, "runs.json", set);
  EXPECT_EQ(load_run_set(files, "runs.json")->runs[0].reason, "no space on 'caf\xef\xbf\xbd");
}

TEST(RunSet, IsFixedBeforeItsFirstRun) {
  const RunSet set = plan_runs(kRecipe, 3, 7);
  EXPECT_EQ(error_of(set, set), "");
  std::string recipe = kRecipe;
  recipe.replace(recipe.find("seed: 4"), 7, "seed: 5");
  EXPECT_EQ(error_of(set, plan_runs(recipe, 3, 7)), "");  // each run has its own
  recipe.replace(recipe.find("global: 8"), 9, "global: 9");
  EXPECT_NE(error_of(set, plan_runs(recipe, 3, 7)).find("batch.global: 8"), std::string::npos);
  EXPECT_NE(error_of(set, plan_runs(kRecipe, 4, 7)).find("3 runs, not 4"), std::string::npos);
  EXPECT_NE(error_of(set, plan_runs(kRecipe, 3, 8)).find("seed 7, not 8"), std::string::npos);
  RunSet other = set;
  other.executable_hash = "other";
  EXPECT_NE(error_of(set, other).find("another program"), std::string::npos);
}

TEST(RunSet, ReadsTheOutcomeOfALog) {
  MemoryFileSystem files;
  EXPECT_FALSE(read_outcome(files, "none").minutes.has_value());
  SyntheticLog log = good_log();
  write_file(files, "good", log.text());
  const LogOutcome good = read_outcome(files, "good");
  EXPECT_TRUE(good.reached_target);
  EXPECT_EQ(good.benchmark, "llama31_8b");
  EXPECT_GT(good.minutes.value(), 1);
  log.at("run_stop").metadata["status"] = "aborted";
  write_file(files, "aborted", log.text());
  EXPECT_FALSE(read_outcome(files, "aborted").reached_target);
}

}  // namespace
}  // namespace tutti::mlperf
