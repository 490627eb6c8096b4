#include "tutti/train/tasks/bench_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tutti/base/testing/memory_file.h"

namespace tutti::train {
namespace {

constexpr const char* kFigure = "step, tokens/s";

BenchRow bench_row(double value, double noise = 0.005, int cores = 2) {
  BenchRow row;
  row.time = "2026-01-31T12:00:00Z";
  row.version = "0.2.0";
  row.machine = {{"cpu", "EPYC"}, {"cores", cores}, {"memory_gib", 24}, {"kernel", "6.1"}};
  row.figures[kFigure] = {value, noise};
  return row;
}

BenchVerdict verdict_of(const std::vector<BenchRow>& before, const BenchRow& now) {
  return judge_bench(before, now).at(0).verdict;
}

// Of rows with `noise` around 1000, a row whose true value is (1 + change) 1000: the share of 2000
// trials with that verdict.
double share_of(BenchVerdict verdict, int rows, double noise, double change) {
  std::mt19937 random(17);
  std::normal_distribution<double> value(1, noise);
  int hits = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<BenchRow> before;
    for (int i = 0; i < rows; ++i) before.push_back(bench_row(1000 * value(random)));
    hits += verdict_of(before, bench_row(1000 * (1 + change) * value(random))) == verdict ? 1 : 0;
  }
  return static_cast<double>(hits) / kTrials;
}

TEST(BenchHistory, FindsAPlantedSlowdownOfTenPercent) {
  EXPECT_GT(share_of(BenchVerdict::slower, 12, 0.01, -0.1), 0.99);
  EXPECT_GT(share_of(BenchVerdict::slower, 5, 0.01, -0.1), 0.98);
  EXPECT_GT(share_of(BenchVerdict::slower, 12, 0.02, -0.1), 0.85);
  EXPECT_EQ(verdict_of({bench_row(1000), bench_row(1002)}, bench_row(900)), BenchVerdict::slower);
}

TEST(BenchHistory, NoiseOfTwoPercentIsNoSlowdown) {
  for (const int rows : {1, 2, 3, 5, 12}) {
    EXPECT_LT(share_of(BenchVerdict::slower, rows, 0.02, 0), 0.01) << rows << " rows";
    EXPECT_LT(share_of(BenchVerdict::faster, rows, 0.02, 0), 0.01) << rows << " rows";
  }
  EXPECT_EQ(verdict_of({bench_row(1000)}, bench_row(980)), BenchVerdict::same);
  EXPECT_EQ(verdict_of({bench_row(1000)}, bench_row(1020)), BenchVerdict::same);
}

TEST(BenchHistory, RowsThatScatterWidenTheLimit) {
  std::vector<BenchRow> before;
  for (const double value : {1000, 850, 1100, 950, 1150, 900}) before.push_back(bench_row(value));
  EXPECT_EQ(verdict_of(before, bench_row(880)), BenchVerdict::same);
  EXPECT_EQ(verdict_of(before, bench_row(500)), BenchVerdict::slower);
}

TEST(BenchHistory, OneOutlierAmongTheRowsChangesNothing) {
  std::vector<BenchRow> before(6, bench_row(1000));
  before.push_back(bench_row(300));
  EXPECT_EQ(verdict_of(before, bench_row(900)), BenchVerdict::slower);
  EXPECT_EQ(verdict_of(before, bench_row(990)), BenchVerdict::same);
}

TEST(BenchHistory, NoisyRowsAreIgnored) {
  const std::vector<BenchRow> before(6, bench_row(1000));
  EXPECT_EQ(verdict_of(before, bench_row(900, 0.05)), BenchVerdict::same);
  EXPECT_EQ(verdict_of(before, bench_row(900, 0.01)), BenchVerdict::slower);
}

TEST(BenchHistory, OnlyRecentRowsOfTheSameMachineTypeCount) {
  std::vector<BenchRow> before(5, bench_row(2000));  // long ago
  before.insert(before.end(), kBenchRows, bench_row(1000));
  before.insert(before.end(), 5, bench_row(3000, 0.005, 4));
  const BenchJudgement judgement = judge_bench(before, bench_row(1100)).at(0);
  EXPECT_EQ(judgement.reference, 1000);
  EXPECT_EQ(judgement.rows, kBenchRows);
  EXPECT_EQ(judgement.verdict, BenchVerdict::faster);
  EXPECT_NEAR(judgement.change, 0.1, 1e-12);
}

TEST(BenchHistory, WithoutRowsThereIsNothingToCompare) {
  EXPECT_EQ(verdict_of({}, bench_row(1000)), BenchVerdict::first);
  EXPECT_EQ(verdict_of({bench_row(500, 0.005, 64)}, bench_row(1000)), BenchVerdict::first);
}

TEST(BenchHistory, AnotherKernelIsTheSameKindOfMachine) {
  BenchRow now = bench_row(900);
  now.machine["kernel"] = "6.12";
  EXPECT_EQ(verdict_of({bench_row(1000)}, now), BenchVerdict::slower);
}

TEST(BenchHistory, AFigureIsTheMedianWithItsStandardError) {
  const BenchFigure quiet = bench_figure({100, 100, 100});
  EXPECT_EQ(quiet.value, 100);
  EXPECT_EQ(quiet.noise, 0);
  const BenchFigure figure = bench_figure({90, 95, 100, 105, 110});
  EXPECT_EQ(figure.value, 100);
  EXPECT_NEAR(figure.noise, 1.4826 * 0.05 * std::sqrt(1.5708 / 5), 1e-5);
}

TEST(BenchHistory, RowsAreReadAsTheyWereWritten) {
  MemoryFileSystem files;
  const std::string path = "state/tutti/bench.jsonl";
  EXPECT_TRUE(read_bench_history(files, path).empty());
  append_bench_row(files, path, bench_row(1000));
  append_bench_row(files, path, bench_row(900, 0.01));
  const auto rows = read_bench_history(files, path);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(dump_json(to_json(rows[1])), dump_json(to_json(bench_row(900, 0.01))));
}

TEST(BenchHistory, ALineThatWasCutOffIsLeftOut) {
  MemoryFileSystem files;
  const std::string path = "bench.jsonl";
  append_bench_row(files, path, bench_row(1000));
  const std::string whole = read_file(files, path);
  write_file_atomic(files, path, whole + whole.substr(0, 40));
  append_bench_row(files, path, bench_row(900));
  const auto rows = read_bench_history(files, path);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1].figures.at(kFigure).value, 900);
}

TEST(BenchHistory, ThisMachineIsOfItsOwnKind) {
  EXPECT_TRUE(same_kind(bench_machine(), bench_machine()));
  EXPECT_FALSE(same_kind(bench_machine(), Json::object()));
}

}  // namespace
}  // namespace tutti::train
