#include "tutti/checkpoint/store/retention.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

class RetentionTest : public testing::Test {
 protected:
  void save(int64_t step, std::optional<double> loss) {
    FakeRun run(step);
    run.state.validation_loss = loss;
    write_checkpoint(files_, "run", run.tensors, run.state);
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : list_checkpoints(files_, "run")) steps.push_back(info.step);
    return steps;
  }
  using Steps = std::vector<int64_t>;

  MemoryFileSystem files_;
};

TEST_F(RetentionTest, KeepsTheLastAndTheBest) {
  const double losses[] = {3.0, 1.5, 2.0, 1.75, 2.5};
  for (int64_t i = 0; i < 5; ++i) save(i + 1, losses[i]);
  EXPECT_EQ(apply_retention(files_, "run", {.keep_last = 2, .keep_best = true}, 5),
            (std::vector<std::string>{"run/step-00000001", "run/step-00000003"}));
  EXPECT_EQ(steps(), (Steps{2, 4, 5}));
  apply_retention(files_, "run", {.keep_last = 1, .keep_best = false}, 5);
  EXPECT_EQ(steps(), (Steps{5}));
}

TEST_F(RetentionTest, ZeroKeepsAll) {
  for (int64_t step = 1; step <= 4; ++step) save(step, 1.0);
  EXPECT_TRUE(apply_retention(files_, "run", {.keep_last = 0, .keep_best = false}, 4).empty());
  EXPECT_EQ(steps().size(), 4U);
}

TEST_F(RetentionTest, WithoutAnyLossThereIsNoBest) {
  for (int64_t step = 1; step <= 3; ++step) save(step, std::nullopt);
  apply_retention(files_, "run", {.keep_last = 1, .keep_best = true}, 3);
  EXPECT_EQ(steps(), (Steps{3}));
}

TEST_F(RetentionTest, TheFirstOfEqualLossesIsTheBest) {
  save(1, std::nullopt);
  for (int64_t step = 2; step <= 5; ++step) save(step, 1.0);
  apply_retention(files_, "run", {.keep_last = 1, .keep_best = true}, 5);
  EXPECT_EQ(steps(), (Steps{2, 5}));
}

TEST_F(RetentionTest, DamagedOnesDontCountAndStay) {
  for (int64_t step = 1; step <= 4; ++step) save(step, 1.0);
  files_.damage("run/step-00000003/manifest.json", 10, 1);
  apply_retention(files_, "run", {.keep_last = 2, .keep_best = false}, 4);
  EXPECT_EQ(steps(), (Steps{2, 3, 4}));
}

TEST_F(RetentionTest, LaterStepsDoNotEvictTheNewest) {
  for (const int64_t step : {10, 20, 100}) save(step, 1.0);  // the run went back from 100 to 20
  apply_retention(files_, "run", {.keep_last = 1, .keep_best = false}, 20);
  EXPECT_EQ(steps(), (Steps{20, 100}));
}

TEST_F(RetentionTest, LeftoversOfCrashedSavesGo) {
  save(5, 1.0);
  files_.create_directories("run/step-00000004");
  files_.create("run/step-00000004/shard-00000-of-00001.safetensors");
  files_.create_directories("run/step-00000009");  // of a session that went further
  files_.create_directories("run/notes");
  EXPECT_EQ(apply_retention(files_, "run", {}, 5),
            (std::vector<std::string>{"run/step-00000004", "run/step-00000009"}));
  EXPECT_TRUE(files_.exists("run/notes"));
}

TEST_F(RetentionTest, RemovesUnfinishedAndKeepsDamagedOnes) {
  save(5, 1.0);
  save(6, 1.0);
  files_.damage("run/step-00000006/manifest.json", 10, 1);
  files_.create_directories("run/step-00000007");
  EXPECT_EQ(remove_unfinished(files_, "run"), std::vector<std::string>{"run/step-00000007"});
  EXPECT_EQ(steps(), (Steps{5, 6}));
  EXPECT_TRUE(remove_unfinished(files_, "nowhere").empty());
}

}  // namespace
}  // namespace tutti::checkpoint
