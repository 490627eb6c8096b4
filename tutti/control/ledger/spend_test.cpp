#include "tutti/control/ledger/spend.h"

#include <gtest/gtest.h>

#include "tutti/base/rng.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

const Rate kRate{2, 8, 1, 7'200'000, 1'500'000, 500'000, 1'000'000};

TEST(Spend, AnHourCostsTheRate) {
  const Spend spend = spend_of(kRate, kHourMilliseconds);
  EXPECT_EQ(spend.node_microhours, 2 * kMicro);
  EXPECT_EQ(spend.core_microhours, 8 * kMicro);
  EXPECT_EQ(spend.gpu_microhours, kMicro);
  EXPECT_EQ(spend.micro_usd, 7'200'000);
  EXPECT_EQ(spend.micro_kwh, 1'500'000);
  EXPECT_EQ(spend.micro_kg, 750'000);
  EXPECT_EQ(spend.micro_liters, 1'500'000);
  const Spend measured = spend_of(kRate, kHourMilliseconds, 1'000'000);
  EXPECT_EQ(measured.micro_kwh, 1'000'000);
  EXPECT_EQ(measured.micro_kg, 500'000);
  EXPECT_EQ(measured.micro_usd, spend.micro_usd);
}

// Charging by differences gives the price of the whole time, however it was cut.
TEST(Spend, DifferencesAddUpExactly) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const uint64_t key = stream_key(seed, "cuts");
    Spend booked;
    int64_t at = 0;
    for (uint64_t i = 0; i < 100; ++i) {
      at += static_cast<int64_t>(random_u64(key, i) % 9973);
      booked += spend_of(kRate, at) - booked;
      const Spend now = spend_of(kRate, at);
      ASSERT_EQ(booked, now);
    }
  }
}

TEST(Spend, LargeAmountsDoNotOverflow) {
  // 331,776 GPUs at 10 USD per hour for ten years.
  const Rate rate{41'472, 41'472 * 192, 331'776, 3'317'760 * kMicro, 500'000'000'000, 500'000, 0};
  const Spend spend = spend_of(rate, 10 * 8766 * kHourMilliseconds);
  EXPECT_EQ(spend.micro_usd, 3'317'760 * kMicro * 87'660);
  EXPECT_EQ(spend.gpu_microhours, 331'776 * kMicro * 87'660);
}

TEST(Budget, TheFirstLimitReachedIsNamed) {
  Budget budget;
  EXPECT_FALSE(budget.limited());
  EXPECT_FALSE(limit_reached(budget, spend_of(kRate, 1'000'000'000)));
  budget.micro_usd = 7'200'000;
  EXPECT_FALSE(limit_reached(budget, spend_of(kRate, kHourMilliseconds - 1)));
  const auto reached = limit_reached(budget, spend_of(kRate, kHourMilliseconds));
  ASSERT_TRUE(reached);
  EXPECT_STREQ(reached->what, "usd");
  budget.micro_kwh = 0;
  budget.micro_usd.reset();
  EXPECT_STREQ(limit_reached(budget, {})->what, "kwh");
}

TEST(Budget, TimeLeftEndsAtTheLimit) {
  Budget budget;
  EXPECT_FALSE(milliseconds_left(budget, {}, kRate));
  budget.micro_usd = 1'000'000;
  budget.node_microhours = 10 * kMicro;
  const int64_t left = *milliseconds_left(budget, {}, kRate);
  EXPECT_FALSE(limit_reached(budget, spend_of(kRate, left - 1)));
  EXPECT_TRUE(limit_reached(budget, spend_of(kRate, left + 1)));
  EXPECT_EQ(milliseconds_left(budget, spend_of(kRate, left + 1), kRate), 0);
  Rate free = kRate;
  free.micro_usd_per_hour = 0;
  EXPECT_EQ(milliseconds_left(budget, {}, free), 5 * kHourMilliseconds);
}

TEST(Micro, NumbersAreReadAndWrittenExactly) {
  EXPECT_EQ(parse_micro("12.5", "usd"), 12'500'000);
  EXPECT_EQ(parse_micro("0.000001", "usd"), 1);
  EXPECT_EQ(parse_micro("7", "usd"), 7 * kMicro);
  for (const char* text : {"", ".5", "1.", "-1", "1e3", "1.0000001", "9999999999999", "1,5"}) {
    EXPECT_TRUE(throws(
        ErrorKind::usage, [&] { parse_micro(text, "usd"); }, "usd"))
        << text;
  }
  EXPECT_EQ(format_micro(12'500'000), "12.500000");
  EXPECT_EQ(format_micro(-1), "-0.000001");
}

}  // namespace
}  // namespace tutti::control
