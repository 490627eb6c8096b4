#include "tutti/plan/protocols.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/plan/testing/rows.h"

namespace tutti::plan {
namespace {

FitOptions quick() {
  FitOptions options;
  options.rounds = 2;
  return options;
}

const Progress kSilent = [](int64_t, int64_t) {};

TEST(Protocols, EveryModelIsHeldOutOnce) {
  const std::vector<PreparedRow> rows = rows_of(kTwoModels);
  int64_t models = 0;
  const Validation validation =
      leave_one_model_out(rows, quick(), [&](int64_t done, int64_t total) {
        models = done;
        EXPECT_EQ(total, 2);
      });
  EXPECT_EQ(models, 2);
  ASSERT_EQ(validation.rows.size(), 4U);
  for (const ValidatedRow& row : validation.rows) EXPECT_FALSE(row.fitted);
  EXPECT_EQ(validation.summary.front().rows, 4);
  // The prediction of a model does not use its own times.
  std::string other(kTwoModels);
  other.replace(other.find("1.42"), 4, "9.42");
  const Validation changed = leave_one_model_out(rows_of(other), quick(), kSilent);
  EXPECT_EQ(changed.rows[0].predicted, validation.rows[0].predicted);
  EXPECT_NE(changed.rows[2].predicted, validation.rows[2].predicted);
}

TEST(Protocols, PowerMovesSustainedProductsBetweenChips) {
  const catalog::Chip& gb200 = shipped_catalog().chip("GB200");
  const catalog::Chip& gb300 = shipped_catalog().chip("GB300");
  Constants constants = assumed_constants();
  constants[Constant::gemm_ratio] = 0.6;
  const Constants more = transferred(constants, gb200, gb300);
  // The same energy per FLOP, (1400 - 240) W instead of (1200 - 240) W.
  EXPECT_NEAR(more[Constant::gemm_ratio], 0.6 * 1160 / 960, 1e-12);
  EXPECT_EQ(more.chip_generation, gb300.generation);
  EXPECT_EQ(more[Constant::memory_ratio], constants[Constant::memory_ratio]);
  constants[Constant::gemm_ratio] = 0.8;  // limited to the best of any chip
  EXPECT_NEAR(transferred(constants, gb200, gb300)[Constant::gemm_ratio], 0.87, 1e-12);
  const catalog::Chip& h100 = shipped_catalog().chip("H100");
  const catalog::Chip& h200 = shipped_catalog().chip("H200");
  EXPECT_NEAR(transferred(constants, h100, h200)[Constant::gemm_ratio], 0.8, 1e-12);
}

TEST(Protocols, TransferNeedsRowsOfBothChips) {
  const std::vector<PreparedRow> rows = rows_of(kTwoModels);
  EXPECT_THROW(transfer(rows, shipped_catalog(), "A100-80", "H100", quick(), kSilent), Error);
  const Validation same = transfer(rows, shipped_catalog(), "A100-80", "A100-80", quick(), kSilent);
  EXPECT_EQ(same.summary.front().rows, 4);
}

TEST(Protocols, RankingFindsThePositionOfTheFastest) {
  std::string csv(kTwoModels);
  csv = csv.substr(0, csv.find('\n') + 1);
  for (const char* layout : {"1,8,1,9.0", "2,4,1,3.0", "4,2,1,5.0", "8,1,1,7.0"}) {
    const std::string text(layout);
    csv += "Korthikanti,gpt,48,6144,64,64,24576,51200,2048,64,1," + text.substr(0, 1) + "," +
           text.substr(2, 1) + ",1,1," + text.substr(4, 1) +
           ",8,A100-SXM-80GB,fp16,full,iter_time_s," + text.substr(6) + ",0,\n";
  }
  const std::vector<PreparedRow> rows = rows_of(csv);
  Validation validation;
  const double predicted[] = {4, 6, 5, 8};
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_TRUE(rows[i].predictable()) << rows[i].measurement().unpredictable;
    validation.rows.push_back(validate_row(rows[i], assumed_constants(), false));
    validation.rows[i].predicted = predicted[i];
  }
  const std::vector<Ranking> rankings = rank_layouts(rows, validation);
  ASSERT_EQ(rankings.size(), 1U);
  EXPECT_EQ(rankings[0].layouts, 4);
  EXPECT_EQ(rankings[0].line, 3);
  EXPECT_EQ(rankings[0].predicted_rank, 3);
  EXPECT_DOUBLE_EQ(rankings[0].predicted_first_ratio, 3);
  EXPECT_TRUE(rank_layouts(rows_of(kTwoModels),
                           validate_rows(rows_of(kTwoModels), {}, std::vector<bool>(4)))
                  .empty());
}

}  // namespace
}  // namespace tutti::plan
