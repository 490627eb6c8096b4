#include "tutti/train/session/budget.h"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

TEST(Budget, NoLimitIsNeverExceeded) { EXPECT_FALSE(budget_exceeded(spec::BudgetConfig{}, 1e12)); }

TEST(Budget, HoursCountDirectly) {
  spec::BudgetConfig budget;
  budget.hours = 2;
  EXPECT_FALSE(budget_exceeded(budget, 7199));
  const auto exceeded = budget_exceeded(budget, 7200);
  ASSERT_TRUE(exceeded);
  EXPECT_EQ(exceeded->what, "hours");
  EXPECT_DOUBLE_EQ(exceeded->used, 2);
}

TEST(Budget, MoneyAndEnergyFollowTheRatesOfTheRecipe) {
  spec::BudgetConfig money;
  money.usd = 5;
  money.usd_per_hour = 2.5;
  EXPECT_FALSE(budget_exceeded(money, 2 * 3600 - 1));
  EXPECT_EQ(budget_exceeded(money, 2 * 3600)->what, "usd");
  spec::BudgetConfig energy;
  energy.kwh = 0.5;
  energy.average_watts = 250;
  EXPECT_FALSE(budget_exceeded(energy, 2 * 3600 - 1));
  EXPECT_EQ(budget_exceeded(energy, 2 * 3600)->what, "kwh");
}

}  // namespace
}  // namespace tutti::train
