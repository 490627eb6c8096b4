#include "tutti/control/jobs/amounts.h"

#include <gtest/gtest.h>

namespace tutti::control {
namespace {

TEST(Amounts, HaveTheUnitThatFits) {
  EXPECT_EQ(format_energy(0), "0 mWh");
  EXPECT_EQ(format_energy(54), "54.0 mWh");
  EXPECT_EQ(format_energy(999), "999 mWh");
  EXPECT_EQ(format_energy(1000), "1.00 Wh");
  EXPECT_EQ(format_energy(999'499), "999 Wh");
  EXPECT_EQ(format_energy(999'600), "1.00 kWh");
  EXPECT_EQ(format_energy(12'345'678), "12.3 kWh");
  EXPECT_EQ(format_energy(5'000'000'000'000), "5000 MWh");
  EXPECT_EQ(format_mass(28), "28.0 mg");
  EXPECT_EQ(format_mass(2'500'000), "2.50 kg");
  EXPECT_EQ(format_usd(83'000), "0.08 USD");
}

TEST(Amounts, TimesAreInUtc) {
  EXPECT_EQ(format_day_time(0), "–");
  EXPECT_EQ(format_day_time(1'700'000'000'000), "2023-11-14 22:13:20");
}

}  // namespace
}  // namespace tutti::control
