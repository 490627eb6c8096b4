#include "tutti/plan/run_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

class RunForecastTest : public testing::Test {
 protected:
  RunForecastTest()
      : recipe_(recipe_of("llama2-70b",
                          {"batch.global=64", "batch.micro=1", "recompute=full", "parallel.tp=8",
                           "parallel.dp=8", "parallel.zero=1", "train.steps=100000"})),
        constants_(assumed_constants()) {
    question_.recipe = &recipe_;
    question_.profile = &spec::find_profile("megatron-te");
    question_.system = &shipped().system("azure-nd-h100-v5");
    question_.site = &shipped().site("us-average");
    question_.price = shipped().price_of("azure-nd-h100-v5");
    question_.constants = &constants_;
  }
  RunForecast ask() {
    PipelineSimulator simulator;
    return forecast_run(question_, simulator);
  }

  spec::Recipe recipe_;
  Constants constants_;
  RunQuestion question_;
};

// Tutti's own program is the one for the recipe's device.
TEST_F(RunForecastTest, TuttisProgramIsThatOfTheDevice) {
  const auto keeps_codes = [](const RunForecast& forecast) {
    const auto& kinds = forecast.memory.kinds;
    return std::any_of(kinds.begin(), kinds.end(),
                       [](const auto& kind) { return kind.first == "narrow"; });
  };
  question_.profile = &spec::find_profile("tutti");
  question_.system = &shipped().system("dgx-h100");
  const auto forecast_on = [&](const std::string& device) {
    recipe_ =
        recipe_of("llama3.1-8b", {"batch={global: 64, micro: 1, sequence: 4096}", "parallel.dp=8",
                                  "parallel.zero=2", "precision=fp8", "device=" + device});
    return ask();
  };
  PipelineSimulator simulator;
  Predictor predictor(*question_.system, constants_, simulator);
  const RunForecast host = forecast_on("cpu");
  EXPECT_FALSE(keeps_codes(host));
  EXPECT_EQ(host.step.step_seconds, predictor.step(recipe_, spec::tutti_profile()).step_seconds);
  const RunForecast device = forecast_on("cuda");
  EXPECT_TRUE(keeps_codes(device));
  EXPECT_LT(device.step.step_seconds, host.step.step_seconds);
  EXPECT_EQ(device.step.step_seconds,
            predictor.step(recipe_, spec::tutti_profile_on(recipe_)).step_seconds);
  // If the chip's memory cannot hold them, a run does without.
  catalog::System small = *question_.system;
  small.chip.memory_bytes = 40e9;
  question_.system = &small;
  EXPECT_FALSE(keeps_codes(forecast_on("cuda")));
}

// A benchmark's run is on the clock: nothing is saved, and what fails starts over.
TEST_F(RunForecastTest, RunsOfBenchmarksAreNotResumed) {
  const std::vector<catalog::Benchmark> benchmarks =
      catalog::load_benchmarks(posix_file_system(), std::string(TUTTI_SOURCE_DIR) + "/catalog");
  question_.benchmark = catalog::find_benchmark(benchmarks, "llama2_70b_lora");
  ASSERT_NE(question_.benchmark, nullptr);
  recipe_ = recipe_of("llama2-70b",
                      {"batch={global: 64, micro: 1, sequence: 8192}", "recompute=full",
                       "parallel.tp=8", "parallel.dp=8", "parallel.zero=1", "lora.rank=16"});
  question_.failures.per_job_per_day = 100;
  const RunForecast f = ask();
  ASSERT_TRUE(f.memory.fits);
  const double rate = interruptions_per_second(question_.failures, 8);
  EXPECT_GE(f.work_seconds / f.wall_seconds, std::exp(-rate * f.work_seconds));
  EXPECT_LT(f.work_seconds / f.wall_seconds, 1);
  EXPECT_TRUE(to_json(f, question_)["checkpoint_interval_seconds"].is_null());
  std::string text;
  for (const auto& [name, value] : describe(f, question_)) text += name + ": " + value + "\n";
  EXPECT_NE(text.find("of runs fail and start over"), std::string::npos) << text;
  EXPECT_EQ(text.find("a checkpoint every"), std::string::npos) << text;
  EXPECT_EQ(text.find("checkpoint: "), std::string::npos) << text;
  // Preempted nodes end it too, whatever the notice.
  question_.price_kind = catalog::PriceKind::spot;
  question_.spot = {1, 600};
  EXPECT_GT(ask().wall_seconds, f.wall_seconds);
  EXPECT_FALSE(ask().spot->saves_in_time);
}

TEST_F(RunForecastTest, SlowNodesAreInTheTime) {
  const RunForecast even = ask();
  question_.slow = {1, 1.25};
  const RunForecast slow = ask();
  EXPECT_DOUBLE_EQ(slow.work_seconds, 1.25 * even.work_seconds);
  EXPECT_GT(slow.bill.usd, even.bill.usd);
}

TEST_F(RunForecastTest, SpotIsCheaperByTheHourAndTakesLonger) {
  const RunForecast calm = ask();
  question_.price_kind = catalog::PriceKind::spot;
  question_.spot = {0.5, 120};
  const RunForecast spot = ask();
  EXPECT_GT(spot.wall_seconds, calm.wall_seconds);
  EXPECT_LT(*spot.bill.usd, *calm.bill.usd);
  ASSERT_GE(spot.costs.size(), 2U);
  EXPECT_EQ(spot.costs[0].kind, "on-demand");
  EXPECT_DOUBLE_EQ(spot.costs[0].usd, *calm.bill.usd);
  EXPECT_DOUBLE_EQ(spot.costs[1].usd, *spot.bill.usd);
  question_.spot = {1000, 120};
  EXPECT_TRUE(std::isinf(ask().wall_seconds));
  EXPECT_TRUE(to_json(ask(), question_)["time_to_target_minutes"].is_null());
}

TEST_F(RunForecastTest, RunsAreSimulatedUnderRandomFailuresOnRequest) {
  EXPECT_FALSE(ask().played);
  EXPECT_FALSE(to_json(ask(), question_).contains("simulated_failures"));
  question_.played_runs = 50;
  question_.seed = 3;
  const RunForecast f = ask();
  ASSERT_TRUE(f.played);
  EXPECT_NEAR(f.played->failures.mean_wall_seconds / f.failures.wall_seconds, 1, 0.02);
  EXPECT_LE(f.played->best.wall_seconds, f.played->best.daly_wall_seconds);
  const Json json = to_json(f, question_).at("simulated_failures");
  EXPECT_EQ(json.at("runs"), 50);
  EXPECT_NEAR(json.at("goodput").get<double>(), f.failures.goodput, 0.02);
  EXPECT_EQ(json, to_json(ask(), question_).at("simulated_failures"));
  question_.seed = 4;
  EXPECT_NE(json.at("wall_seconds"),
            to_json(ask(), question_).at("simulated_failures").at("wall_seconds"));

  question_.failures.per_job_per_day = question_.failures.per_node_per_day = 0;
  EXPECT_TRUE(to_json(ask(), question_).at("simulated_failures").is_null());
  question_.failures.per_job_per_day = 1e6;  // never ends
  EXPECT_TRUE(to_json(ask(), question_).at("simulated_failures").is_null());
  question_.failures.per_job_per_day = 300;
  question_.played_runs = 100'000'000;
  EXPECT_THROW(ask(), Error);
}

TEST_F(RunForecastTest, PricesHaveTheDateOfTheirKind) {
  catalog::Price price = *question_.price;
  price.entry.quantities = {{"on_demand_chip_usd_per_hour", {2, "me", "2026-01-01"}},
                            {"reserved_chip_usd_per_hour", {1, "me", "2026-03-03"}}};
  price.reserved_usd_per_hour = 1;
  question_.price = &price;
  const auto described = [&](catalog::PriceKind kind) {
    question_.price_kind = kind;
    std::string text;
    for (const auto& [name, value] : describe(ask(), question_)) text += value + "\n";
    return text;
  };
  EXPECT_NE(described(catalog::PriceKind::reserved).find("(reserved, 2026-03-03)"),
            std::string::npos);
  EXPECT_NE(described(catalog::PriceKind::on_demand).find("(on-demand, 2026-01-01)"),
            std::string::npos);
}

TEST_F(RunForecastTest, BudgetAndPowerAreConstraints) {
  const RunForecast free = ask();
  EXPECT_FALSE(free.within_budget.has_value());
  const double cost = *free.bill.usd + free.spares_usd;
  question_.budget_usd = cost / 2;
  const RunForecast half = ask();
  EXPECT_FALSE(*half.within_budget);
  EXPECT_NEAR(half.affordable_steps, 50000, 1e-6);
  question_.budget_usd = cost * 2;
  EXPECT_TRUE(*ask().within_budget);
  // Power for two and a half nodes is power for two nodes of 8.
  question_.site_power_watts = 2.5 * free.power.facility_watts / 8;
  const RunForecast capped = ask();
  EXPECT_EQ(capped.power.chips_allowed, 16);
  EXPECT_FALSE(capped.power.within);
}

TEST_F(RunForecastTest, PowerMissingInTheCatalogIsUnknownNotZero) {
  catalog::System system = *question_.system;
  system.chip.board_watts = 0;
  question_.system = &system;
  catalog::Site site = *question_.site;
  site.rack_watts = 40e3;
  question_.site = &site;
  question_.site_power_watts = 1e6;
  const RunForecast forecast = ask();
  EXPECT_FALSE(forecast.power.within);
  const Json json = parse_json(dump_json(to_json(forecast, question_)), "test");
  EXPECT_TRUE(json.at("energy_kwh").is_null());
  EXPECT_TRUE(json.at("co2e_kg").is_null());
  EXPECT_TRUE(json.at("power").at("facility_watts").is_null());
  EXPECT_TRUE(json.at("power").at("gpus_allowed").is_null());
  EXPECT_TRUE(json.at("power").at("nodes_per_rack").is_null());
}

TEST_F(RunForecastTest, CheckpointsAndIntervalStateTheirOrigin) {
  const RunForecast forecast = ask();
  const double parameters = static_cast<double>(spec::param_table(recipe_.model).trainable_count());
  EXPECT_DOUBLE_EQ(forecast.checkpoint_bytes, 12 * parameters);
  EXPECT_DOUBLE_EQ(forecast.checkpoint_seconds, forecast.checkpoint_bytes / 8e9);  // 8 nodes
  EXPECT_NE(forecast.checkpoint_from.find("assumed"), std::string::npos);
  EXPECT_EQ(forecast.interval_above, kAssumedInterval);
  constants_.nearness = Nearness::assumed;
  EXPECT_NE(ask().interval_from.find("no rows: assumed"), std::string::npos);
  constants_.interval = 0.1;
  constants_.nearness = Nearness::release;
  const RunForecast known = ask();
  EXPECT_DOUBLE_EQ(known.interval_above, 0.1);
  EXPECT_NE(known.interval_from.find("another release"), std::string::npos);
  constants_.rest_ratio = 3;
  const double share = products_share(known.step.split);
  EXPECT_GT(share, 0.3);
  EXPECT_LT(share, 0.95);
  EXPECT_DOUBLE_EQ(ask().interval_above, 0.1 * std::hypot(share, 3 * (1 - share)));
  const Json json = to_json(known, question_);
  const double minutes = known.wall_seconds / 60;
  EXPECT_DOUBLE_EQ(json.at("interval").at("low_minutes").get<double>(), minutes * std::exp(-0.1));
  EXPECT_DOUBLE_EQ(json.at("interval").at("high_minutes").get<double>(), minutes * std::exp(0.1));
  EXPECT_NEAR(known.failure_usd / *known.bill.usd, 1 - known.work_seconds / known.wall_seconds,
              1e-12);
}

// No bill for a run that does not fit.
TEST_F(RunForecastTest, RunsThatDoNotFitHaveNoBill) {
  ASSERT_TRUE(ask().memory.fits);
  EXPECT_FALSE(to_json(ask(), question_).at("cost_usd").is_null());
  recipe_.parallel.tp = 1;
  recipe_.parallel.dp = 64;
  const RunForecast forecast = ask();
  ASSERT_FALSE(forecast.memory.fits);
  const Json json = to_json(forecast, question_);
  EXPECT_FALSE(json.at("fits").get<bool>());
  for (const char* key : {"cost_usd", "energy_kwh", "co2e_kg", "time_to_target_minutes", "power"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  EXPECT_TRUE(json.at("cost_by_price_kind").empty());
  std::string text;
  for (const auto& [name, value] : describe(forecast, question_)) {
    text.append(name).append(" ").append(value).append("\n");
  }
  EXPECT_NE(text.find("DOES NOT FIT"), std::string::npos);
  EXPECT_NE(text.find("moment1"), std::string::npos);  // the parts of the memory
  EXPECT_EQ(text.find("USD"), std::string::npos);
  EXPECT_EQ(text.find("kWh"), std::string::npos);
}

TEST_F(RunForecastTest, MissingPricesAreReportedAndRefuseBudgets) {
  question_.price = nullptr;
  std::string text;
  for (const auto& [name, value] : describe(ask(), question_)) text += value + "\n";
  EXPECT_NE(text.find("NO PUBLIC PRICE of azure-nd-h100-v5"), std::string::npos);
  question_.budget_usd = 1e6;
  EXPECT_THROW(ask(), Error);
  // Only reserved instances have a price there.
  const catalog::Price* price = shipped().price_of("meta-24k");
  EXPECT_EQ(catalog::price_kind_of(price, ""), catalog::PriceKind::reserved);
  EXPECT_EQ(catalog::price_kind_of(price, "spot"), catalog::PriceKind::spot);
  EXPECT_EQ(catalog::price_kind_of(nullptr, ""), catalog::PriceKind::on_demand);
}

TEST_F(RunForecastTest, LimitIsTheResourceWithTheLargestSaving) {
  const RunForecast forecast = ask();
  ASSERT_FALSE(forecast.savings.empty());
  EXPECT_EQ(forecast.step.bottleneck, forecast.savings.front().resource);
  EXPECT_EQ(to_json(forecast, question_).at("savings_if_doubled").at(0).at("resource"),
            forecast.step.bottleneck);
}

// Four minutes are over before any node returns from repair.
TEST_F(RunForecastTest, ShortRunsNeedNoSparesOfADay) {
  const int64_t many = ask().spare_nodes;
  recipe_.train.steps = 10;
  EXPECT_LE(ask().spare_nodes, 1);
  EXPECT_GE(many, ask().spare_nodes);
}

}  // namespace
}  // namespace tutti::plan
