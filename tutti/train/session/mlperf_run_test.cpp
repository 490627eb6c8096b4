// Runs that count: the order and the values of what they log.
#include "tutti/train/session/mlperf_run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

using telemetry::MlperfLine;

class MlperfRunTest : public testing::SessionTest {
 protected:
  MlperfRunTest() {
    recipe_.mlperf.benchmark = "llama31_8b";
    recipe_.train.target_validation_loss = 0.001;  // out of reach
    recipe_.evaluate.every_steps = 0;
    recipe_.evaluate.every_samples = 4 * recipe_.batch.global - 1;  // rounded up to 4 steps
    recipe_.checkpoint.every_steps = 0;
    recipe_.mlperf.clear_all = false;
  }

  std::vector<std::string> keys() const {
    std::vector<std::string> out;
    for (const MlperfLine& line : events<MlperfLine>()) out.push_back(line.key);
    return out;
  }
  std::vector<MlperfLine> lines(const std::string& key) const {
    std::vector<MlperfLine> out;
    for (const MlperfLine& line : events<MlperfLine>()) {
      if (line.key == key) out.push_back(line);
    }
    return out;
  }
  int64_t index_of(const std::string& key) const {
    const auto all = keys();
    return std::find(all.begin(), all.end(), key) - all.begin();
  }
};

TEST_F(MlperfRunTest, LinesComeInTheOrderOfTheRules) {
  recipe_.train.steps = 9;
  run("run");
  const auto all = keys();
  const auto tail = std::vector<std::string>(all.begin() + index_of("init_stop"), all.end());
  EXPECT_EQ(tail,
            (std::vector<std::string>{
                "init_stop",     "run_start",     "epoch_start",       "block_start",
                "train_samples",
                "eval_samples",  // data
                "tracked_stats", "block_stop",    "eval_start",        "eval_accuracy",
                "eval_stop",  // 4
                "block_start",   "tracked_stats", "block_stop",        "eval_start",
                "eval_accuracy",
                "eval_stop",  // 8
                "block_start",   "tracked_stats", "block_stop",        "eval_start",
                "eval_accuracy",
                "eval_stop",  // 9, the last
                "epoch_stop",    "run_stop",      "train_corpus_xxh3", "validation_corpus_xxh3"}));
  EXPECT_EQ(all[0], "cache_clear");
  EXPECT_EQ(all[1], "init_start");
  EXPECT_LT(index_of("seed"), index_of("init_stop"));
  const int64_t global = recipe_.batch.global;
  std::vector<Json> samples;
  for (const MlperfLine& line : lines("eval_accuracy")) {
    samples.push_back(line.metadata["samples_count"]);
  }
  EXPECT_EQ(samples, (std::vector<Json>{4 * global, 8 * global, 9 * global}));
  EXPECT_EQ(lines("run_stop")[0].metadata["status"], "aborted");
  EXPECT_EQ(lines("block_start")[0].metadata["epoch_count"], 4 * global);
  EXPECT_EQ(lines("block_start")[2].metadata["first_epoch_num"], 8 * global);
}

TEST_F(MlperfRunTest, TheTargetEndsItWithSuccess) {
  recipe_.train.target_validation_loss = 100.0;
  run("run");
  ASSERT_EQ(lines("eval_accuracy").size(), 1U);
  const MlperfLine stop = lines("run_stop")[0];
  EXPECT_EQ(stop.metadata["status"], "success");
  EXPECT_EQ(stop.metadata["samples_count"], 4 * recipe_.batch.global);
  EXPECT_EQ(lines("eval_accuracy")[0].value, events<telemetry::EvaluationDone>()[0].loss);
  EXPECT_EQ(lines("train_corpus_xxh3")[0].value,
            hash_hex(hash_text(read_file(files_, "train.bin"))));
}

TEST_F(MlperfRunTest, FirstEvaluationsAreSkippedAsTheRulesSay) {
  recipe_.evaluate.skip_first = 2;
  recipe_.train.steps = 16;
  run("run");
  std::vector<Json> steps;
  for (const auto& evaluation : events<telemetry::EvaluationDone>()) {
    steps.push_back(evaluation.step);
  }
  EXPECT_EQ(steps, (std::vector<Json>{12, 16}));
  EXPECT_EQ(lines("block_start")[0].metadata["epoch_count"], 12 * recipe_.batch.global);
}

TEST_F(MlperfRunTest, AnInterruptedRunCannotGoOn) {
  run("run", 6);
  EXPECT_EQ(lines("run_stop")[0].metadata["status"], "aborted");
  try {
    run("run");
    FAIL() << "resumed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("cannot be resumed"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(lines("run_start").size(), 1U);
}

TEST_F(MlperfRunTest, ErrorsDuringTheRunAbortIt) {
  recipe_.data.train = "missing";
  EXPECT_THROW(run("run"), Error);
  ASSERT_EQ(lines("run_stop").size(), 1U);
  EXPECT_EQ(lines("run_stop")[0].metadata["status"], "aborted");
}

// Their corpora are in memory only; drop_page_cache() is not for tests.
TEST_F(MlperfRunTest, UnclearedCachesAreNotReportedCleared) {
  run("run");
  EXPECT_EQ(lines("cache_clear")[0].value, false);
  bool warned = false;
  for (const auto& message : events<telemetry::Message>()) {
    warned = warned || message.text.find("caches") != std::string::npos;
  }
  EXPECT_TRUE(warned);
}

TEST_F(MlperfRunTest, RunsWithoutABenchmarkSayNothing) {
  recipe_.mlperf.benchmark.clear();
  run("run");
  EXPECT_TRUE(keys().empty());
}

}  // namespace
}  // namespace tutti::train
