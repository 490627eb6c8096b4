#include "tutti/control/ledger/ledger.h"

#include <gtest/gtest.h>

#include "tutti/base/rng.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

Launch launch_at(const Job& job, const Rate& rate, int64_t generation = 1) {
  Launch launch;
  launch.job = job.id;
  launch.generation = generation;
  launch.rate = rate;
  return launch;
}

TEST(Ledger, RatesAreSharesOfNodes) {
  SmallControlPlane plane;
  const auto nodes = all_nodes(plane.database);
  const Site site = read_site(plane.database);
  const Rate whole = rate_of(site, nodes, {{1, 1, "n1", 4, 0}, {1, 1, "n2", 4, 0}});
  EXPECT_EQ(whole, (Rate{2, 8, 0, 7'200'000, 2'000'000, 600'000, 2'000'000}));
  EXPECT_EQ(rate_of(site, nodes, {{1, 1, "n1", 1, 0}}).micro_usd_per_hour, 900'000);
  // Of a node with GPUs the larger share counts.
  const std::vector<Node> gpus = {{"g", 96, 8, true, false, ""}};
  EXPECT_EQ(rate_of(site, gpus, {{1, 1, "g", 12, 4}}).micro_usd_per_hour, 1'800'000);
  EXPECT_EQ(rate_of(site, gpus, {{1, 1, "g", 96, 4}}).micro_usd_per_hour, 3'600'000);
}

// Many launches of several jobs, charged at random moments, over months: totals equal the sum of
// the entries, and the entries the price of the time, to the last millionth.
TEST(Ledger, TotalsAreTheSumOfEntriesExactly) {
  SmallControlPlane plane;
  const uint64_t key = stream_key(5, "ledger");
  uint64_t draw = 0;
  Spend all;
  for (int i = 0; i < 6; ++i) {
    const bool first = i % 2 == 0;
    const Job job = submit(plane.as(first ? "ada" : "bob"),
                           SmallControlPlane::request(first ? "vision" : "speech"), false)
                        .job;
    for (int64_t generation = 1; generation <= 3; ++generation) {
      const Rate rate{1, 3, 0, 3'333'333, 777'777, 123'457, 1'000'003};
      int64_t elapsed = 0;
      Transaction transaction(plane.database);
      for (int charges = 0; charges < 20; ++charges) {
        elapsed += static_cast<int64_t>(random_u64(key, draw++) % 100'000'007);
        charge(plane.database, job, launch_at(job, rate, generation), elapsed, std::nullopt,
               kNoon + elapsed);
      }
      // A clock that goes back books into an earlier month, and changes no sum.
      charge(plane.database, job, launch_at(job, rate, generation), elapsed + 1, std::nullopt,
             kNoon);
      transaction.commit();
      all += spend_of(rate, elapsed + 1);
    }
  }
  verify_ledger(plane.database);
  EXPECT_EQ(spent_by_project(plane.database, "vision") + spent_by_project(plane.database, "speech"),
            all);
  EXPECT_GT(ledger_entries(plane.database, "", "").size(), 18U);
  Spend january;
  for (const LedgerEntry& entry : ledger_entries(plane.database, "vision", "2026-01")) {
    EXPECT_EQ(entry.user, "ada");
    january += entry.spend;
  }
  EXPECT_LT(january.micro_usd, spent_by_project(plane.database, "vision").micro_usd);
}

// As after a restore: nothing was booked until its end was reported.
TEST(Ledger, LaunchesAreBookedInEachMonth) {
  SmallControlPlane plane;
  const Job job = submit(plane.as("ada"), SmallControlPlane::request(), false).job;
  const Launch launch = launch_at(job, {1, 4, 0, 3'600'000, 1'000'000, 500'000, 0});
  Transaction transaction(plane.database);
  const int64_t day_ms = 24 * kHourMilliseconds;
  // From the 31st of January, noon, to the 2nd of March, noon.
  charge(plane.database, job, launch, 30 * day_ms, 7'200'000, kNoon + 30 * day_ms);
  const auto hours_of = [&](const std::string& month) {
    const auto entries = ledger_entries(plane.database, "vision", month);
    return entries.size() == 1 ? entries[0].spend.node_microhours / kMicro : -1;
  };
  EXPECT_EQ(hours_of("2026-01"), 12);
  EXPECT_EQ(hours_of("2026-02"), 28 * 24);
  EXPECT_EQ(hours_of("2026-03"), 36);
  EXPECT_EQ(ledger_entries(plane.database, "vision", "2026-01")[0].spend.micro_kwh, 120'000);
  EXPECT_EQ(spent_by_job(plane.database, job.id).micro_kwh, 7'200'000);
  // What is booked stays where it is.
  charge(plane.database, job, launch, 31 * day_ms, std::nullopt, kNoon + 60 * day_ms);
  EXPECT_EQ(hours_of("2026-01"), 12);
  EXPECT_EQ(hours_of("2026-02"), 28 * 24);
  transaction.commit();
  verify_ledger(plane.database);
}

TEST(Ledger, MeasuredEnergyReplacesTheEstimate) {
  SmallControlPlane plane;
  const Job job = submit(plane.as("ada"), SmallControlPlane::request(), false).job;
  const Launch launch = launch_at(job, {1, 4, 0, 3'600'000, 1'000'000, 500'000, 0});
  Transaction transaction(plane.database);
  charge(plane.database, job, launch, kHourMilliseconds, std::nullopt, kNoon);
  EXPECT_EQ(spent_by_job(plane.database, job.id).micro_kwh, 1'000'000);
  charge(plane.database, job, launch, kHourMilliseconds, 400'000, kNoon);
  transaction.commit();
  EXPECT_EQ(spent_by_job(plane.database, job.id).micro_kwh, 400'000);
  EXPECT_EQ(spent_by_job(plane.database, job.id).micro_kg, 200'000);
  EXPECT_EQ(ledger_entries_of(plane.database, job.id).front().energy, "measured");
  verify_ledger(plane.database);
}

TEST(Ledger, ATotalThatWasChangedIsFound) {
  SmallControlPlane plane;
  const Job job = submit(plane.as("ada"), SmallControlPlane::request(), false).job;
  {
    Transaction transaction(plane.database);
    charge(plane.database, job, launch_at(job, {1, 4, 0, 3'600'000, 0, 0, 0}), 1000, std::nullopt,
           kNoon);
    transaction.commit();
  }
  verify_ledger(plane.database);
  plane.database.run("UPDATE totals SET micro_usd = micro_usd + 1 WHERE scope = 'project'");
  EXPECT_TRUE(throws(
      ErrorKind::corrupt, [&] { verify_ledger(plane.database); }, "vision"));
}

}  // namespace
}  // namespace tutti::control
