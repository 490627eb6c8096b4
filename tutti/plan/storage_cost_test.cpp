#include "tutti/plan/storage_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/plan/run_forecast.h"
#include "tutti/plan/testing/systems.h"
#include "tutti/spec/model/params.h"

namespace tutti::plan {
namespace {

catalog::Storage disk_of(double save_gigabytes, double load_gigabytes, double pieces_per_second) {
  catalog::Storage storage;
  storage.name = "scratch";
  storage.reads_from = "store";
  storage.figures = {{"checkpoint_save_gigabytes_per_second", save_gigabytes},
                     {"checkpoint_load_gigabytes_per_second", load_gigabytes},
                     {"random_64k_many_per_second", pieces_per_second}};
  return storage;
}

class StorageCostTest : public testing::Test {
 protected:
  StorageCostTest()
      : recipe_(
            recipe_of("llama3.1-8b", {"batch={global: 64, micro: 1, sequence: 4096}",
                                      "parallel.dp=16", "parallel.zero=1", "train.steps=1000000"})),
        system_(shipped().system("dgx-h100")),
        parameters_(static_cast<double>(spec::param_table(recipe_.model).trainable_count())) {}

  spec::Recipe recipe_;
  const catalog::System& system_;
  const double parameters_;
};

TEST_F(StorageCostTest, SavesAreSpreadOverNodesAndWeightsAreReadByEach) {
  const StorageForecast forecast =
      forecast_storage(disk_of(2, 4, 1e6), recipe_, system_, 1.0);  // two nodes
  EXPECT_NEAR(forecast.save_seconds, 12 * parameters_ / 2 / 2e9, 1e-6);
  EXPECT_NEAR(forecast.start_seconds, (4 * parameters_ + 8 * parameters_ / 2) / 4e9, 1e-6);
  recipe_.parallel.zero = 0;
  EXPECT_NEAR(forecast_storage(disk_of(2, 4, 1e6), recipe_, system_, 1.0).start_seconds,
              12 * parameters_ / 4e9, 1e-6);
}

TEST_F(StorageCostTest, AModelOverTwoNodesIsReadByHalves) {
  recipe_.parallel.dp = 1;
  recipe_.parallel.pp = 16;
  const StorageForecast forecast = forecast_storage(disk_of(2, 4, 1e6), recipe_, system_, 1.0);
  EXPECT_NEAR(forecast.start_seconds, 12 * parameters_ / 2 / 4e9, 1e-6);
  // Both of them read all samples.
  EXPECT_NEAR(forecast.needed_samples_per_second, 64, 1e-9);
}

TEST_F(StorageCostTest, AFeedThatIsTooSlowMakesStepsWait) {
  // 128,256 tokens: four bytes each.
  const double pieces = 1 + (4 * 4097.0 - 1) / 65536;
  const StorageForecast fast = forecast_storage(disk_of(2, 4, 1e6), recipe_, system_, 2.0);
  EXPECT_NEAR(fast.needed_samples_per_second, 64 / 2.0 / 2, 1e-9);
  EXPECT_NEAR(fast.given_samples_per_second, 1e6 / pieces, 1e-6);
  EXPECT_EQ(fast.feed_factor, 1);
  EXPECT_FALSE(fast.starves_feed());
  EXPECT_NE(verdict_text(fast).find("starves no GPU"), std::string::npos);
  const StorageForecast slow = forecast_storage(disk_of(2, 4, 4 * pieces), recipe_, system_, 2.0);
  EXPECT_NEAR(slow.feed_factor, 4, 1e-9);
  EXPECT_TRUE(slow.starves_feed());
  EXPECT_NE(verdict_text(slow).find("scratch STARVES THE GPUS"), std::string::npos);
  EXPECT_NE(verdict_text(slow).find("75% of the time"), std::string::npos);
}

// Of a disk, small samples need not be read by 64 KiB.
TEST_F(StorageCostTest, ADiskIsReadByTheSizeThatIsFaster) {
  catalog::Storage disk = disk_of(2, 4, 1000);
  disk.figures["random_4k_many_per_second"] = 1e5;
  EXPECT_NEAR(forecast_storage(disk, recipe_, system_, 1).given_samples_per_second,
              1000 / (1 + (4 * 4097.0 - 1) / 65536), 1e-6);
  disk.reads_from = "O_DIRECT";
  EXPECT_NEAR(forecast_storage(disk, recipe_, system_, 1).given_samples_per_second,
              1e5 / (1 + (4 * 4097.0 - 1) / 4096), 1e-6);
}

TEST_F(StorageCostTest, TheRunTakesAsMuchLongerAsItsSteps) {
  const Constants constants = assumed_constants();
  RunQuestion question;
  question.recipe = &recipe_;
  question.profile = &spec::find_profile("megatron-te");
  question.system = &system_;
  question.site = &shipped().site("us-average");
  question.constants = &constants;
  PipelineSimulator simulator;
  const RunForecast without = forecast_run(question, simulator);
  EXPECT_FALSE(without.storage);
  const catalog::Storage fast = disk_of(1e-3, 4, 1e9), slow = disk_of(2, 4, 1);
  question.storage = &fast;
  const RunForecast fed = forecast_run(question, simulator);
  EXPECT_EQ(fed.work_seconds, without.work_seconds);
  EXPECT_NEAR(fed.checkpoint_seconds, 12 * parameters_ / 2 / 1e6, 1e-3);
  EXPECT_TRUE(fed.storage->starves_saves());
  EXPECT_NE(verdict_text(*fed.storage).find("scratch IS TOO SLOW"), std::string::npos);
  question.storage = &slow;
  const RunForecast starved = forecast_run(question, simulator);
  EXPECT_GT(starved.storage->feed_factor, 1);
  EXPECT_NEAR(starved.work_seconds / without.work_seconds, starved.storage->feed_factor, 1e-9);
  EXPECT_EQ(starved.step.step_seconds, without.step.step_seconds);
  EXPECT_TRUE(to_json(starved, question).at("storage").at("starves_feed").get<bool>());
}

}  // namespace
}  // namespace tutti::plan
