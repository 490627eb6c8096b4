#include "tutti/plan/choice.h"

#include <gtest/gtest.h>

#include "tutti/plan/pressure.h"
#include "tutti/plan/scaling.h"

namespace tutti::plan {
namespace {

catalog::System small_system() {
  catalog::System system;
  system.name = "small";
  system.chip.name = "C";
  system.chip.memory_bytes = 100e9;
  system.chip.board_watts = 1000;
  system.chips_per_node = 4;
  system.nodes_per_rack = 10;
  system.node_idle_watts = 500;
  return system;
}

RunTerms quiet_terms(double steps) {
  RunTerms terms;
  terms.steps = steps;
  terms.site.name = "here";
  terms.site.pue = 1.5;
  terms.failures.per_job_per_day = terms.failures.per_node_per_day = 0;
  return terms;
}

Found found_of(double seconds, double bytes = 50e9) {
  Found found;
  found.step.step_seconds = seconds;
  found.step.split.products = seconds;
  found.memory.bytes = bytes;
  found.memory.fits = bytes <= 100e9;
  return found;
}

catalog::Price price_of(double usd) {
  catalog::Price price;
  price.on_demand_usd_per_hour = usd;
  return price;
}

TEST(Choice, IsPricedFromStepToRun) {
  const catalog::System system = small_system();
  const catalog::Price price = price_of(2);
  const Choice choice = make_choice(system, &price, 8, found_of(3.6), quiet_terms(1000));
  EXPECT_DOUBLE_EQ(choice.forecast.wall_seconds, 3600);
  EXPECT_DOUBLE_EQ(*choice.bill.usd, 8 * 2);
  // 500 W and four boards at 90%: 4.1 kW a node, ten of them a rack, two of them for an hour.
  EXPECT_NEAR(*choice.rack_watts, 41e3, 1e-6);
  EXPECT_NEAR(choice.bill.facility_kwh, 2 * 4.1 * 1.5, 1e-9);
}

TEST(Choice, ParetoFrontHasNoDominatedChoice) {
  const catalog::System system = small_system();
  const catalog::Price price = price_of(2);
  const RunTerms terms = quiet_terms(1000);
  std::vector<Choice> choices;
  choices.push_back(make_choice(system, &price, 8, found_of(3.6), terms));   // slow and cheap
  choices.push_back(make_choice(system, &price, 16, found_of(2.0), terms));  // fast and dear
  choices.push_back(make_choice(system, &price, 16, found_of(4.0), terms));  // dominated by both
  choices.push_back(make_choice(system, &price, 32, found_of(0.5, 200e9), terms));  // too large
  choices.push_back(make_choice(system, nullptr, 8, found_of(3.7), terms));  // no price: energy
  EXPECT_EQ(pareto_front(choices), (std::vector<size_t>{1, 0}));
}

TEST(Choice, RecommendsTheCheapestInTimeOrElseTheNearest) {
  const catalog::System system = small_system();
  const catalog::Price price = price_of(2);
  const RunTerms terms = quiet_terms(1000);
  std::vector<Choice> choices;
  choices.push_back(make_choice(system, &price, 8, found_of(3.6), terms));   // 60 min, 16 USD
  choices.push_back(make_choice(system, &price, 16, found_of(2.4), terms));  // 40 min, 21 USD
  choices.push_back(make_choice(system, &price, 32, found_of(1.5), terms));  // 25 min, 27 USD
  const auto pick = [&](const Constraints& constraints) {
    const Recommended recommended = recommend(choices, constraints);
    return std::pair(recommended.index, recommended.satisfied);
  };
  EXPECT_EQ(pick({}), std::pair(size_t{2}, true));                 // the fastest
  EXPECT_EQ(pick({45 * 60, 0, 0}), std::pair(size_t{1}, true));    // the cheapest in time
  EXPECT_EQ(pick({0, 20, 0}), std::pair(size_t{0}, true));         // the fastest for the money
  EXPECT_EQ(pick({30 * 60, 20, 0}), std::pair(size_t{1}, false));  // 1.33 times the target
  EXPECT_EQ(pick({0, 0, 40e3}).second, false);
  const std::vector<Excess> missed = excesses(choices[1], {30 * 60, 20, 0});
  ASSERT_EQ(missed.size(), 2U);
  EXPECT_EQ(missed[0].key, "target");
  EXPECT_NEAR(missed[0].ratio, 4.0 / 3, 1e-9);
  EXPECT_NEAR(missed[1].ratio, 21.333 / 20, 1e-3);
  EXPECT_TRUE(excesses(choices[2], {30 * 60, 0, 0}).empty());
}

TEST(Pressure, NamesTheLimitThatIsNearestAndTheNext) {
  const catalog::System system = small_system();
  RunTerms terms = quiet_terms(1000);
  terms.site.rack_watts = 41e3 / 0.8;
  Found found = found_of(1, 120e9);
  found.step.split.products = 0.7;
  found.step.split.dp = 0.2;
  found.step.split.bubble = 0.1;
  const std::vector<Pressure> list =
      pressures(make_choice(system, nullptr, 8, found, terms), terms);
  ASSERT_EQ(list.size(), 5U);
  EXPECT_EQ(list[0].key, "memory");
  EXPECT_NEAR(list[0].used, 1.2, 1e-9);
  EXPECT_EQ(list[1].key, "power");  // (500 + 4000 (0.2 + 0.7 x 0.7)) x 10 over the cap
  EXPECT_NEAR(list[1].used, 32.6e3 / (41e3 / 0.8), 1e-6);
  EXPECT_EQ(list[2].key, "network");
  EXPECT_NEAR(list[2].used, 0.4, 1e-9);
  const std::string sentence = pressure_sentence(list);
  EXPECT_EQ(sentence.substr(0, 22), "Breaks first: memory: ");
  EXPECT_NE(sentence.find("Next: power: "), std::string::npos);
}

TEST(Scaling, EfficiencyAndLossesAreShares) {
  const catalog::System system = small_system();
  const RunTerms terms = quiet_terms(1000);
  Found one = found_of(8);
  Found four = found_of(2.5);
  four.step.split.products = 2;
  four.step.split.bubble = 0.4;
  four.step.split.tp = 0.1;
  const std::vector<ScalingRow> rows = scaling_rows(
      {make_choice(system, nullptr, 8, one, terms), make_choice(system, nullptr, 32, four, terms)},
      {64, 64}, 1024);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_DOUBLE_EQ(rows[0].efficiency, 1);
  EXPECT_EQ(lost_text(rows[0]), "");
  EXPECT_DOUBLE_EQ(rows[1].speedup, 3.2);
  EXPECT_DOUBLE_EQ(rows[1].efficiency, 0.8);
  EXPECT_EQ(lost_text(rows[1]), "pipeline bubble 16.0%, tensor-parallel communication 4.0%");
  double lost = 0;
  for (const auto& [part, share] : rows[1].lost) lost += share;
  EXPECT_NEAR(lost, 1 - rows[1].efficiency, 1e-12);
}

}  // namespace
}  // namespace tutti::plan
