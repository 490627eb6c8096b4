#include "tutti/plan/reliability.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/plan/testing/rows.h"

namespace tutti::plan {
namespace {

CsvTable table_of(const std::string& rows) {
  return parse_csv("source,model,gpus,metric,value,note\n" + rows, "rows.csv");
}

const char* const kRows =
    "Clusters,,,failures_per_1000_node_days,8,one\n"
    "Clusters,,,failures_per_1000_node_days,2,two\n"
    "Clusters,,1024,mttf_hours,8,measured\n"
    "Clusters,,8,mttf_hours,1200,measured\n"
    "Clusters,,16384,mttf_hours,1.8,projected\n"
    "Target,,16384,interruptions_unexpected_50d,400,\n"
    "Target,,16384,mttf_hours,0.001,measured\n";

TEST(Reliability, FitIsTheGeometricMeanAndTheRateOfJobs) {
  const FailureModel model = fit_failures(table_of(kRows), {}, "Target");
  EXPECT_NEAR(model.per_node_per_day, 4e-3, 1e-12);
  EXPECT_NEAR(model.per_job_per_day, 3 - 128 * 4e-3, 1e-12);
  // One node: 0.02 a day.
  EXPECT_NEAR(interruptions_per_second(model, 1) * 86400, 0.02, 1e-12);
  EXPECT_GT(model.spread_ratio, std::log(2) * std::sqrt(2.0 / 3) - 1e-12);
  EXPECT_LT(model.spread_ratio, std::log(2));
}

TEST(Reliability, LeftOutRowsDoNotMoveTheFit) {
  const FailureModel without = fit_failures(table_of(kRows), {}, "Target");
  const FailureModel with = fit_failures(table_of(kRows), {}, "");
  EXPECT_EQ(without.per_node_per_day, with.per_node_per_day);
  EXPECT_LT(without.per_job_per_day, with.per_job_per_day);
  EXPECT_THROW(fit_failures(table_of("Target,,8,mttf_hours,1,\n"), {}, ""), Error);
}

TEST(Reliability, RowsHaveIntervalsOrReasons) {
  const CsvTable table = table_of(
      std::string(kRows) +
      "Target,,16384,interruptions_by_cause,10,GPU\nTarget,,,gpu_hours,5,arithmetic not metered\n");
  const std::vector<ReliabilityRow> rows =
      validate_reliability(table, fit_failures(table, {}, "Target"), shipped_catalog());
  ASSERT_EQ(rows.size(), 9U);
  const ReliabilityRow& target = rows[5];
  ASSERT_TRUE(target.interval.has_value());
  EXPECT_NEAR(target.row.predicted, 50 * (3 - 128 * 4e-3 + 2048 * 4e-3), 1e-9);
  EXPECT_LT(target.interval->low, 400);
  EXPECT_GT(target.interval->high, 400);
  EXPECT_TRUE(*target.inside);
  EXPECT_EQ(rows[7].row.skipped, "causes are not distinguished");
  EXPECT_EQ(rows[8].row.skipped, "the source's arithmetic, not a measurement");
  EXPECT_EQ(to_json(rows, {}).at("rows").size(), 9U);
}

TEST(Reliability, RowsWithoutAValueAreListedAndNotFittedOn) {
  const CsvTable table = table_of(std::string(kRows) +
                                  "Clusters,,,failures_per_1000_node_days,,three\n"
                                  "Clusters,,2048,mttf_hours,0,measured\n");
  const FailureModel model = fit_failures(table, {}, "Target");
  const FailureModel without = fit_failures(table_of(kRows), {}, "Target");
  EXPECT_EQ(model.per_node_per_day, without.per_node_per_day);
  EXPECT_EQ(model.per_job_per_day, without.per_job_per_day);
  const std::vector<ReliabilityRow> rows = validate_reliability(table, model, shipped_catalog());
  for (const size_t i : {7U, 8U}) {
    EXPECT_EQ(rows[i].row.skipped, "the measured value is missing or not above zero");
  }
}

TEST(Reliability, DefaultsAreTheCatalogs) {
  const FailureModel shipped = load_failure_model(posix_file_system(), {catalog_folder()});
  const FailureModel defaults;
  EXPECT_EQ(shipped.per_job_per_day, defaults.per_job_per_day);
  EXPECT_EQ(shipped.job_nodes, defaults.job_nodes);
  EXPECT_EQ(shipped.per_node_per_day, defaults.per_node_per_day);
  EXPECT_EQ(shipped.spread_ratio, defaults.spread_ratio);
  EXPECT_EQ(shipped.restart_seconds, defaults.restart_seconds);
  EXPECT_EQ(shipped.save_seconds, defaults.save_seconds);
}

// Llama 3 405B: 419 unplanned interruptions in 54 days on 16,384 GPUs, more than 90% effective.
TEST(Reliability, Llama3IsPredictedWithoutItsOwnFigures) {
  const std::string path = shared_validation("reliability.csv");
  if (!posix_file_system().exists(path)) GTEST_SKIP() << "skipped: no shared data";
  const CsvTable table = parse_csv(read_file(posix_file_system(), path), path);
  const FailureModel shipped = load_failure_model(posix_file_system(), {catalog_folder()});
  const FailureModel model = fit_failures(table, shipped, "Llama 3 Herd");
  EXPECT_NEAR(model.per_job_per_day, shipped.per_job_per_day, 0.01);
  EXPECT_NEAR(model.per_node_per_day, shipped.per_node_per_day, 1e-5);
  EXPECT_NEAR(model.job_nodes, shipped.job_nodes, 1);
  EXPECT_NEAR(model.spread_ratio, shipped.spread_ratio, 1e-3);
  const InterruptionInterval interval = interruption_interval(model, 2048, 54);
  EXPECT_LT(interval.low, 419);
  EXPECT_GT(interval.high, 419);
  EXPECT_LT(interval.high / interval.low, 3);
  EXPECT_GT(forecast_failures(model, 2048, 54 * 86400.0).goodput, 0.9);
}

}  // namespace
}  // namespace tutti::plan
