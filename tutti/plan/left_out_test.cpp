#include "tutti/plan/left_out.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/plan/testing/rows.h"

namespace tutti::plan {
namespace {

FitOptions two_rounds() {
  FitOptions options;
  options.rounds = 2;
  return options;
}

// The rows of two models in two families of software; the times of the second family are `factor`
// times as long, and those of the larger model `larger` times as long again.
std::string two_families(double factor, const char* first = "one-1", const char* second = "two-1",
                         double larger = 1) {
  const std::string text = kTwoModels;
  const size_t end = text.find('\n');
  std::string out = text.substr(0, end) + ",software\n";
  for (const char* software : {first, second}) {
    const CsvTable table = parse_csv(text, "rows");
    for (size_t row = 0; row < table.rows.size(); ++row) {
      const double own = table.number(row, "gpus", 0) > 8 ? factor * larger : factor;
      const double times = software == second ? own : 1;
      for (const std::string& column : table.columns) {
        const double value = column == "value" ? times * table.number(row, "value", 0) : 0;
        out += column == "value" ? fmt::format("{},", value) : table.field(row, column) + ",";
      }
      out += std::string(software) + "\n";
    }
  }
  return out;
}

const auto kQuiet = [](int64_t, int64_t) {};

TEST(LeftOut, HeldOutRowsAreNotUsed) {
  const LeftOut one = leave_out(rows_of(two_families(1)), LeftOutBy::family, two_rounds(), kQuiet);
  const LeftOut other =
      leave_out(rows_of(two_families(1.5)), LeftOutBy::family, two_rounds(), kQuiet);
  ASSERT_EQ(one.validation.rows.size(), 8U);
  EXPECT_EQ(one.folds.front(), "one");
  // The second family's times do not affect its own prediction, but that of the first.
  EXPECT_EQ(one.validation.rows[4].predicted, other.validation.rows[4].predicted);
  EXPECT_NE(one.validation.rows[0].predicted, other.validation.rows[0].predicted);
  ASSERT_EQ(one.summary.size(), 3U);
  EXPECT_EQ(one.summary.back().name, "all");
  EXPECT_EQ(one.summary.back().rows, 8);
}

// A family that is slower as a whole: a measured row of it shows so.
TEST(LeftOut, AnchorRemovesTheErrorThatAFamilyShares) {
  const LeftOut out =
      leave_out(rows_of(two_families(1.5)), LeftOutBy::family, two_rounds(), kQuiet);
  const LeftOutSummary& all = out.summary.back();
  EXPECT_GT(all.mean_error, 0.2);
  EXPECT_LT(all.anchored.mean_error, 0.5 * all.mean_error);
  EXPECT_LE(all.nearest.mean_error, all.anchored.mean_error);
  EXPECT_LT(out.anchored_interval, out.interval);
  EXPECT_LT(out.nearest_interval, out.interval);
  EXPECT_GT(out.spread.family * out.spread.family + out.spread.alike * out.spread.alike,
            out.spread.own * out.spread.own);
}

// One of the two models has a smaller share of products. If its errors are larger, the stated
// interval grows as that share falls; and 80% of the rows are inside it.
TEST(LeftOut, IntervalsGrowWithTheShareThatIsNotProducts) {
  const auto left_out = [](double factor, double larger) {
    return leave_out(rows_of(two_families(factor, "one-1", "two-1", larger)), LeftOutBy::family,
                     two_rounds(), kQuiet);
  };
  const std::vector<PreparedRow> rows = rows_of(kTwoModels);
  const double small = rows[1].products_share(assumed_constants());
  const double large = rows[3].products_share(assumed_constants());
  EXPECT_GT(std::abs(small - large), 0.02);
  const LeftOut of_small = left_out(1.6, 1 / 1.6);
  const LeftOut of_large = left_out(1, 1.6);
  const LeftOut& grows = small < large ? of_small : of_large;
  const LeftOut& falls = small < large ? of_large : of_small;
  EXPECT_GT(grows.rest_ratio, 1.5);
  EXPECT_EQ(falls.rest_ratio, 1);
  EXPECT_EQ(to_json(grows).at("rest_error_ratio").get<double>(), grows.rest_ratio);
}

TEST(LeftOut, OneGroupCannotBeLeftOut) {
  EXPECT_THROW(leave_out(rows_of(kTwoModels), LeftOutBy::family, two_rounds(), kQuiet), Error);
  EXPECT_THROW(parse_left_out("model"), Error);
  EXPECT_EQ(parse_left_out("software"), LeftOutBy::software);
}

TEST(LeftOut, IsTheSameOnAnyNumberOfThreads) {
  const std::vector<PreparedRow> rows = rows_of(two_families(1.2, "one-1", "one-2"));
  const auto left_out = [&](int threads) {
    FitOptions options = two_rounds();
    options.threads = threads;
    const LeftOut out = leave_out(rows, LeftOutBy::software, options, kQuiet);
    std::string text = to_json(out).dump();
    for (const ValidatedRow& row : out.validation.rows) text += fmt::format(" {}", row.predicted);
    return text;
  };
  EXPECT_EQ(left_out(1), left_out(4));
}

// Groups that are not requested are not fitted, and do not change the requested ones.
TEST(LeftOut, OnlyRequestedGroupsAreFitted) {
  const std::vector<PreparedRow> rows = rows_of(two_families(1.2, "one-1", "one-2"));
  const std::vector<bool> all(rows.size(), true);
  const auto both = fit_groups(rows, all, two_rounds(), nullptr, kQuiet);
  const auto one = fit_groups(rows, all, two_rounds(), nullptr, kQuiet, {"ampere/one-2"});
  ASSERT_EQ(both.size(), 2U);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].name, "ampere/one-2");
  EXPECT_EQ(one[0].value, both[1].value);
}

TEST(LeftOut, ReleasesOfOneSoftwareOnOneLayout) {
  const ReleaseSpread spread = release_spread(rows_of(two_families(1.1, "one-1", "one-2")));
  EXPECT_EQ(spread.pairs, 4);
  EXPECT_NEAR(spread.mean, std::log(1.1), 1e-9);
  EXPECT_EQ(release_spread(rows_of(two_families(1.1))).pairs, 0);
  EXPECT_NE(format_releases(spread).find("10.0%"), std::string::npos);
}

TEST(LeftOut, AnchorsCorrectTimesAndRatesAlike) {
  std::string csv = two_families(1);
  const std::vector<PreparedRow> rows = rows_of(csv);
  Constants pooled = assumed_constants();
  pooled.chip_generation = pooled.software = kAny;
  pooled.spread = {0.2, 0, 0.05};
  Validation validation = validate_rows(rows, {pooled}, std::vector<bool>(rows.size(), false));
  const Validation before = validation;
  const MeasuredError anchor = {row_kind(rows[0].measurement().recipe, rows[0].system().chip), 0.1,
                                "mine"};
  correct_rows(rows, {pooled}, {anchor}, validation);
  const double factor = std::exp(0.1 * 0.04 / 0.0425);
  EXPECT_NEAR(validation.rows[0].predicted, factor * before.rows[0].predicted, 1e-9);
  EXPECT_NEAR(1 + validation.rows[0].error, factor * (1 + before.rows[0].error), 1e-9);
}

// A precision that is not stated is inferred by a rule or refused, never silently 16 bits.
TEST(LeftOut, APrecisionIsStatedOrInferred) {
  std::string csv = kTwoModels;
  for (size_t at; (at = csv.find(",fp16,")) != std::string::npos;) csv.replace(at, 6, ",,");
  const std::vector<PreparedRow> rows = rows_of(csv);
  EXPECT_TRUE(rows.front().predictable());
  EXPECT_NE(rows.front().measurement().inferred.find("A100-80"), std::string::npos);
  std::string hopper = csv;
  for (size_t at; (at = hopper.find("Korthikanti")) != std::string::npos;) {
    hopper.replace(at, 11, "MosaicML llm-foundry");
  }
  for (size_t at; (at = hopper.find("A100-SXM-80GB")) != std::string::npos;) {
    hopper.replace(at, 13, "H100-SXM-80GB");
  }
  EXPECT_NE(rows_of(hopper).front().measurement().unpredictable.find("precision is not stated"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::plan
