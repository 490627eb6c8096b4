#include "tutti/control/ledger/statement.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/csv.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Statement, IsTheSumOfItsJobsToTheLastDigit) {
  SmallControlPlane plane;
  for (int i = 0; i < 3; ++i) {
    const Job job = submit(plane.as(i == 2 ? "bob" : "ada"),
                           SmallControlPlane::request(i == 2 ? "speech" : "vision"), false)
                        .job;
    Launch launch;
    launch.job = job.id;
    launch.generation = 1;
    launch.rate = {1, 4, 0, 3'333'333, 999'999, 400'001, 0};
    Transaction transaction(plane.database);
    charge(plane.database, job, launch, 1'234'567 + i,
           i == 0 ? std::optional<int64_t>(5) : std::nullopt, kNoon);
    transaction.commit();
  }
  const Statement statement = make_statement(plane.database, {"speech", "vision"}, "2026-01");
  ASSERT_EQ(statement.jobs.size(), 3U);
  EXPECT_EQ(statement.jobs[1].energy, "measured");
  EXPECT_EQ(statement.jobs[2].energy, "estimated");
  EXPECT_EQ(statement.projects[1].second, spent_by_project(plane.database, "vision"));
  const CsvTable table = parse_csv(statement_csv(statement), "statement");
  int64_t usd = 0;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    usd += parse_micro(table.field(row, "usd"), "usd");
  }
  EXPECT_EQ(
      usd, (spent_by_project(plane.database, "vision") + spent_by_project(plane.database, "speech"))
               .micro_usd);
  EXPECT_TRUE(make_statement(plane.database, {"vision"}, "2026-02").jobs.empty());
  const std::string page = statement_html(statement, read_site(plane.database), 1.77e9);
  EXPECT_NE(page.find(table.field(0, "usd")), std::string::npos);
}

}  // namespace
}  // namespace tutti::control
