#include "tutti/plan/bill.h"

#include <gtest/gtest.h>

namespace tutti::plan {
namespace {

TEST(Bill, FollowsFromPowerTimeAndPrice) {
  catalog::System system;
  system.chips_per_node = 8;
  system.node_idle_watts = 2800;
  system.chip.board_watts = 700;
  catalog::Site site;
  site.pue = 1.25;
  site.kg_co2e_per_kwh = 0.4;
  site.liters_per_kwh = 2;
  catalog::Price price;
  price.on_demand_usd_per_hour = 3;
  StepPrediction step;
  step.step_seconds = step.split.products = 1;  // always busy
  const Bill bill = bill_of(system, site, &price, catalog::PriceKind::on_demand, step, 16, 7200);
  EXPECT_DOUBLE_EQ(bill.node_watts, 2800 + 8 * 0.9 * 700);
  EXPECT_NEAR(bill.node_watts / 10200, 0.76, 0.02);  // of the rated 10.2 kW, as measured
  EXPECT_DOUBLE_EQ(bill.chip_hours, 32);
  EXPECT_DOUBLE_EQ(*bill.usd, 96);
  EXPECT_DOUBLE_EQ(bill.it_kwh, 7.84 * 2 * 2);
  EXPECT_DOUBLE_EQ(bill.facility_kwh, bill.it_kwh * 1.25);
  EXPECT_DOUBLE_EQ(bill.co2e_kg, bill.facility_kwh * 0.4);
  EXPECT_DOUBLE_EQ(bill.water_liters, bill.it_kwh * 2);
  // A part of a node costs as much as the whole node.
  const Bill part = bill_of(system, site, &price, catalog::PriceKind::on_demand, step, 12, 7200);
  EXPECT_DOUBLE_EQ(*part.usd, *bill.usd);
  EXPECT_DOUBLE_EQ(part.chip_hours, 24);
  EXPECT_FALSE(
      bill_of(system, site, nullptr, catalog::PriceKind::on_demand, step, 16, 1).usd.has_value());
}

}  // namespace
}  // namespace tutti::plan
