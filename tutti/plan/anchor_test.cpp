#include "tutti/plan/anchor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/plan/testing/rows.h"

namespace tutti::plan {
namespace {

RowKind kind_of(const char* generation, spec::Precision precision) {
  RowKind kind;
  kind.generation = generation;
  kind.precision = precision;
  return kind;
}
const RowKind kHopper = kind_of("hopper", spec::Precision::bf16);
const RowKind kBlackwell = kind_of("blackwell", spec::Precision::fp8);

TEST(Anchor, NothingIsCorrectedWithoutRowsOrSpread) {
  EXPECT_EQ(correction_for({0.1, 0, 0.05}, {}, kHopper).log_factor, 0);
  EXPECT_EQ(correction_for({}, {{kHopper, 0.3, {}}}, kHopper).log_factor, 0);
  EXPECT_EQ(correction_for({0.1, 0, 0.05}, {}, kHopper).interval_share, 1);
}

// One row: the shared fraction of its error. Many rows: their mean.
TEST(Anchor, ShrinksByTheUnsharedFraction) {
  const ErrorSpread spread = {0.2, 0, 0.1};
  const Correction one = correction_for(spread, {{kHopper, 0.3, {}}}, kHopper);
  EXPECT_NEAR(one.log_factor, 0.3 * 0.04 / 0.05, 1e-12);
  EXPECT_NEAR(one.interval_share, std::sqrt((0.05 - 0.04 * 0.04 / 0.05) / 0.05), 1e-12);
  const std::vector<MeasuredError> many(1000, {kHopper, 0.3, {}});
  const Correction sure = correction_for(spread, many, kHopper);
  EXPECT_NEAR(sure.log_factor, 0.3, 1e-3);
  EXPECT_NEAR(sure.interval_share, std::sqrt(0.01 / 0.05), 1e-3);
  EXPECT_LT(sure.interval_share, one.interval_share);
  EXPECT_EQ(sure.anchors, 1000);
}

TEST(Anchor, RowsOfTheSameKindCountMore) {
  const ErrorSpread spread = {0.1, 0.1, 0.05};
  const double same = correction_for(spread, {{kHopper, 0.2, {}}}, kHopper).log_factor;
  const double other = correction_for(spread, {{kHopper, 0.2, {}}}, kBlackwell).log_factor;
  EXPECT_NEAR(same, 0.2 * 0.02 / 0.0225, 1e-12);
  // Another chip generation and precision: a distance of 3.
  EXPECT_NEAR(other, 0.2 * (0.01 + 0.01 * std::exp(-1.0)) / 0.0225, 1e-12);
  // Of two that disagree the one of the same kind counts more.
  EXPECT_GT(
      correction_for(spread, {{kHopper, 0.2, {}}, {kBlackwell, -0.2, {}}}, kHopper).log_factor, 0);
}

// Every doubling of a size counts, and so does every other difference.
TEST(Anchor, NearLayoutsAreNearerThanFarOnes) {
  const std::vector<PreparedRow> rows = rows_of(kTwoModels);
  const auto kind = [&](size_t row) {
    return row_kind(rows[row].measurement().recipe, rows[row].system().chip);
  };
  EXPECT_EQ(nearness(kind(0), kind(0)), 1);
  EXPECT_NEAR(nearness(kind(0), kind(1)), std::exp(-1.0 / 3), 1e-12);  // recomputation
  // Hidden width and layers twice, ranks and pp 8 times, micro-batch a quarter.
  EXPECT_NEAR(nearness(kind(0), kind(2)), std::exp(-0.5 * (1 + 1 + 3 + 3 + 2) / 3), 1e-12);
  EXPECT_EQ(nearness(kind(0), kind(2)), nearness(kind(2), kind(0)));
}

// Errors agree for near layouts, and only for those.
TEST(Anchor, SpreadOfNearRowsIsSeparatedFromThatOfAll) {
  RowKind far = kHopper;
  far.sizes.fill(20);
  std::vector<std::vector<MeasuredError>> groups;
  for (const double shared : {0.2, -0.2}) {
    groups.emplace_back();
    for (int i = 0; i < 400; ++i) {
      groups.back().push_back({i / 2 % 2 == 0 ? kHopper : far,
                               (i / 2 % 2 == 0 ? shared : -shared) + (i % 2 == 0 ? 0.1 : -0.1),
                               {}});
    }
  }
  const ErrorSpread spread = estimate_spread(groups);
  EXPECT_EQ(spread.family, 0);  // near rows have errors of one sign, far rows of the other
  EXPECT_NEAR(spread.alike, 0.2, 0.002);
  // Even fully shared errors leave a part of a row's own, or anchors would not count.
  for (auto& group : groups) {
    for (MeasuredError& error : group) error.log_error = error.kind == kHopper ? 0.2 : -0.2;
  }
  const ErrorSpread full = estimate_spread(groups);
  EXPECT_NEAR(full.own, 0.2 * std::sqrt(0.1), 1e-6);
  EXPECT_GT(correction_for(full, {{kHopper, 0.2, {}}}, kHopper).log_factor, 0.15);
  // Two metrics of one run contain no information about what rows share.
  for (auto& group : groups) {
    for (MeasuredError& error : group) error.run = "one";
  }
  EXPECT_EQ(estimate_spread(groups).alike, 0);
}

TEST(Anchor, SpreadIsRecoveredFromRows) {
  // Errors of families 0.2 and -0.2, plus 0.1 per row.
  std::vector<std::vector<MeasuredError>> groups;
  for (const double shared : {0.2, -0.2}) {
    groups.emplace_back();
    for (int i = 0; i < 400; ++i) {
      const RowKind kind = i / 2 % 2 == 0 ? kHopper : kBlackwell;
      groups.back().push_back({kind, shared + (i % 2 == 0 ? 0.1 : -0.1), {}});
    }
  }
  const ErrorSpread spread = estimate_spread(groups);
  EXPECT_NEAR(spread.family, 0.2, 0.002);
  EXPECT_NEAR(spread.own, 0.1, 0.002);
  EXPECT_LT(spread.alike, 0.02);
}

TEST(Anchor, CorrectedStepsKeepTheirSplit) {
  StepPrediction step;
  step.step_seconds = 2;
  step.split.products = 1.5;
  step.split.host = 0.5;
  step.tokens_per_second_per_chip = 100;
  step.mfu_causal = 0.4;
  Correction correction;
  correction.log_factor = std::log(1.25);
  const StepPrediction slower = corrected(step, correction);
  EXPECT_DOUBLE_EQ(slower.step_seconds, 2.5);
  EXPECT_NEAR(slower.split.total(), 2.5, 1e-12);
  EXPECT_DOUBLE_EQ(slower.tokens_per_second_per_chip, 80);
  EXPECT_DOUBLE_EQ(slower.mfu_causal, 0.32);
}

// A measured step of one model moves the prediction of the other by nearly as much.
TEST(Anchor, MeasuredRowsMoveOtherRows) {
  Constants pooled = assumed_constants();
  pooled.name = "any/any";
  pooled.chip_generation = pooled.software = kAny;
  pooled.interval = 0.3;
  pooled.anchored_interval = 0.12;
  pooled.spread = {0.2, 0.05, 0.05};
  const std::vector<Constants> sets = {pooled};
  const std::vector<PreparedRow> rows = rows_of(kTwoModels);
  const std::vector<PreparedRow> anchors(1, rows.front());
  const std::vector<MeasuredError> errors = measured_errors(anchors, sets, std::nullopt);
  ASSERT_EQ(errors.size(), 1U);
  const RowKind kind = row_kind(rows.front().measurement().recipe, rows.front().system().chip);
  EXPECT_EQ(errors.front().kind, kind);
  const Correction correction = correction_for(spread_of(sets), errors, kind);
  EXPECT_NEAR(correction.log_factor, errors.front().log_error * 0.0425 / 0.045, 1e-9);
  const Constants constants = constants_for(sets, rows.front().system().chip, "");
  EXPECT_NEAR(interval_with(sets, constants, correction), 0.12, 1e-12);
  EXPECT_EQ(interval_with(sets, constants, Correction{}), 0.3);
  EXPECT_THROW(measured_errors({}, sets, std::nullopt), Error);
  // A unit that is wrong corrects nothing.
  Measurement wrong = rows.front().measurement();
  wrong.value *= 5000;
  const std::vector<PreparedRow> absurd(1, PreparedRow(std::move(wrong), shipped_catalog()));
  EXPECT_THROW(measured_errors(absurd, sets, std::nullopt), Error);
}

// A row states its machine twice: both must be the same.
TEST(Anchor, RowsOfAnotherGpuAreRefused) {
  const auto reason = [](const std::string& gpu, const std::string& system) {
    const std::vector<PreparedRow> rows = rows_of(
        "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,global_batch,micro_batch,"
        "tp,pp,dp,gpus,gpu_type,system,precision,recompute,metric,value\n"
        "mine,llama3.1-8B,32,4096,32,8,14336,128256,8192,128,1,1,1,64,64," +
        gpu + "," + system + ",bf16,selective,tokens_per_s_per_gpu,5500\n");
    return rows.front().measurement().unpredictable;
  };
  EXPECT_EQ(reason("H100-SXM-80GB", "dgx-h100"), "");
  EXPECT_EQ(reason("", "dgx-h100"), "");
  EXPECT_EQ(reason("A100-SXM-80GB", ""), "");
  EXPECT_NE(reason("A100-SXM-80GB", "dgx-h100").find("not the H100"), std::string::npos);
  EXPECT_NE(reason("FOO", "dgx-h100").find("no chip of the catalog"), std::string::npos);
}

}  // namespace
}  // namespace tutti::plan
