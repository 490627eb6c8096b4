#include "tutti/control/jobs/requests.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/controller/node_health.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

Project limited(SmallControlPlane& plane) { return *find_project(plane.database, "vision"); }

TEST(Submit, ASubmittedJobIsPendingAndLogged) {
  SmallControlPlane plane;
  const Job job = submit(plane.as("ada"), SmallControlPlane::request(), false).job;
  EXPECT_EQ(job.state, JobState::pending);
  const Job stored = visible_job(plane.as("ada"), job.id);
  EXPECT_EQ(stored.request, SmallControlPlane::request());
  EXPECT_EQ(stored.user, "ada");
  EXPECT_EQ(audit_lines(plane.database, 1, "").front()["what"], "submit");
}

TEST(Submit, ARequestIsReadBackWhole) {
  JobRequest request = SmallControlPlane::request();
  request.folder = "/work";
  request.run_folder = "runs/x";
  request.data_class = "public";
  request.nodes = 2;
  request.cores = 3;
  request.priority = -4;
  request.deadline_ms = kNoon + 1;
  request.time_limit_ms = 2;
  request.max_attempts = 9;
  request.preemptible = false;
  request.budget.micro_usd = 5;
  request.budget.gpu_microhours = 1;
  request.forecast = {1, 2, 3, "measured"};
  request.client_key = "k";
  EXPECT_EQ(request_from_json(to_json(request), "test"), request);
  SmallControlPlane plane;
  EXPECT_EQ(visible_job(plane.as("ada"), submit(plane.as("ada"), request, false).job.id).request,
            request);
}

TEST(Submit, ADryRunLeavesNothing) {
  SmallControlPlane plane;
  const AuditHead head = audit_head(plane.database);
  submit(plane.as("ada"), SmallControlPlane::request(), true);
  EXPECT_EQ(audit_head(plane.database).seq, head.seq);
  EXPECT_TRUE(live_jobs(plane.database).empty());
}

TEST(Submit, TheSameKeyIsTheSameJob) {
  SmallControlPlane plane;
  JobRequest request = SmallControlPlane::request();
  request.client_key = "retry-7";
  const Submission first = submit(plane.as("ada"), request, false);
  for (int i = 0; i < 5; ++i) {
    const Submission again = submit(plane.as("ada"), request, false);
    EXPECT_TRUE(again.duplicate);
    EXPECT_EQ(again.job.id, first.job.id);
  }
  EXPECT_EQ(live_jobs(plane.database).size(), 1U);
  request.command.emplace_back("train.steps=5");
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, "job 1"));
  // Keys are each user's own.
  EXPECT_FALSE(submit(plane.as("olaf"), request, false).duplicate);
}

// A storm of retries from many connections to one file makes one job per key.
TEST(Submit, RacingDuplicatesMakeOneJob) {
  const std::string path =
      testing::TempDir() + "/tutti_control_race_" + std::to_string(::getpid()) + ".db";
  const auto remove = [&] {
    for (const char* end : {"", "-wal", "-shm"}) std::remove((path + end).c_str());
  };
  remove();
  {
    Database database(path);
    prepare_schema(database);
    create_control_plane({database, "root", kNoon}, {"n1", 4, 0, true, false, ""}, Site{});
  }
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Database database(path, 60);
      for (int i = 0; i < 10; ++i) {
        JobRequest request = SmallControlPlane::request(kDefaultProject);
        request.client_key = "key-" + std::to_string(i);
        submit({database, "root", kNoon}, request, false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Database database(path);
  EXPECT_EQ(live_jobs(database).size(), 10U);
  remove();
}

TEST(Submit, QuotasAreStatedInTheRefusal) {
  SmallControlPlane plane;
  Project project = limited(plane);
  project.max_nodes = 1;
  define_project(plane.as("root"), project);
  JobRequest request = SmallControlPlane::request();
  request.nodes = 2;
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); },
      "may have 1 nodes at once, and 2 are asked for"));
  request.nodes = 3;
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, "2 of the 2 nodes here"));
  request = SmallControlPlane::request();
  request.cores = 5;
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, "cores"));
  project = limited(plane);
  project.max_cores = 3;
  define_project(plane.as("root"), project);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), SmallControlPlane::request(), false); },
      "--cores"));
  request.cores = 3;
  submit(plane.as("ada"), request, false);
  const Json denied = audit_lines(plane.database, 2, "").front();
  EXPECT_EQ(denied["allowed"], false);
}

TEST(Submit, ABudgetIsCheckedAgainstTheForecast) {
  SmallControlPlane plane;
  Project project = limited(plane);
  project.budget.micro_usd = 10 * kMicro;
  define_project(plane.as("root"), project);
  JobRequest request = SmallControlPlane::request();
  request.forecast = {3'600'000, 10 * kMicro, 1, "test"};
  const Job job = submit(plane.as("ada"), request, false).job;
  Launch launch;
  launch.job = job.id;
  launch.generation = 1;
  launch.rate = {1, 4, 0, 3'600'000, 0, 0, 0};
  {
    Transaction transaction(plane.database);
    charge(plane.database, job, launch, kHourMilliseconds, std::nullopt, kNoon);
    transaction.commit();
  }
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); },
      "10.000000 usd are forecast, and project 'vision' has 6.400000 usd left"));
  project.budget.micro_usd = 3'600'000;
  define_project(plane.as("root"), project);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), SmallControlPlane::request(), false); },
      "used up"));
  request.budget.micro_usd = kMicro;
  request.project = "vision";
  project.budget = {};
  define_project(plane.as("root"), project);
  // A job's own budget may be less than its forecast: it is what stops it.
  EXPECT_EQ(submit(plane.as("ada"), request, false).warnings,
            (std::vector<std::string>{"10.000000 usd are forecast, and the job has 1.000000 usd "
                                      "left: it will be stopped before its end"}));
}

TEST(Submit, DataRulesRestrictSites) {
  SmallControlPlane plane;
  JobRequest request = SmallControlPlane::request();
  request.data_class = "restricted";
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, "rule 1"));
  Project project = limited(plane);
  project.regions = {"eu"};
  define_project(plane.as("root"), project);
  request.data_class = "";
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, "rule 2"));
  request.data_class = "public";
  submit(plane.as("ada"), request, false);
}

TEST(Jobs, RowsWithInvalidNumbersAreDamage) {
  for (const char* column : {"state", "reason", "stop"}) {
    SmallControlPlane plane;
    const int64_t id = submit(plane.as("ada"), SmallControlPlane::request(), false).job.id;
    for (const int value : {-1, 99}) {
      const std::string sql = std::string("UPDATE jobs SET ") + column + " = ? WHERE id = ?";
      plane.database.run(sql.c_str(), value, id);
      EXPECT_TRUE(throws(
          ErrorKind::corrupt, [&] { find_job(plane.database, id); }, column));
    }
  }
}

TEST(Steer, AWaitingJobIsHeldReleasedCancelledAndRequeued) {
  SmallControlPlane plane;
  const int64_t id = submit(plane.as("ada"), SmallControlPlane::request(), false).job.id;
  EXPECT_EQ(set_held(plane.as("ada"), id, true).reason, Reason::held);
  EXPECT_EQ(set_held(plane.as("ada"), id, false).reason, Reason::priority);
  EXPECT_EQ(cancel(plane.as("ada"), id).state, JobState::cancelled);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { cancel(plane.as("ada"), id); }, "CANCELLED"));
  EXPECT_EQ(requeue(plane.as("ada"), id).state, JobState::pending);
}

TEST(Steer, ARunFolderBelongsToOneJobAtATime) {
  SmallControlPlane plane;
  JobRequest request = SmallControlPlane::request();
  request.run_folder = "/runs/mine";
  const int64_t first = submit(plane.as("ada"), request, false).job.id;
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, "job 1, which has not"));
  cancel(plane.as("ada"), first);
  const int64_t second = submit(plane.as("ada"), request, false).job.id;
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { requeue(plane.as("ada"), first); }, "job 2, which has not ended"));
  EXPECT_EQ(find_job(plane.database, first)->state, JobState::cancelled);
  cancel(plane.as("ada"), second);
  EXPECT_EQ(requeue(plane.as("ada"), first).state, JobState::pending);
}

TEST(Steer, IsIdleWhenNothingCanStart) {
  SmallControlPlane plane;
  EXPECT_TRUE(is_idle(plane.database, kNoon));
  const int64_t id = submit(plane.as("ada"), SmallControlPlane::request(), false).job.id;
  EXPECT_FALSE(is_idle(plane.database, kNoon));
  set_held(plane.as("ada"), id, true);
  EXPECT_TRUE(is_idle(plane.database, kNoon));
  set_held(plane.as("ada"), id, false);
  EXPECT_FALSE(is_idle(plane.database, kNoon));
  cancel(plane.as("ada"), id);
  EXPECT_TRUE(is_idle(plane.database, kNoon));
}

// A node that its check took out of use comes back by itself, while a controller runs.
TEST(Steer, IsNotIdleWhileAJobWaitsForAFailedCheck) {
  SmallControlPlane plane;
  submit(plane.as("ada"), SmallControlPlane::request(), false);
  NodeReport sick;
  sick.healthy = false;
  sick.failures = {{"memory", "slow"}};
  std::vector<NodeReport> reports;
  for (const Node& node : all_nodes(plane.database)) {
    reports.push_back(sick);
    reports.back().node = node.name;
  }
  ASSERT_EQ(follow_health(plane.database, reports, kNoon), static_cast<int64_t>(reports.size()));
  EXPECT_FALSE(is_idle(plane.database, kNoon));
  set_held(plane.as("ada"), 1, true);
  EXPECT_TRUE(is_idle(plane.database, kNoon));  // no node would do
  set_held(plane.as("ada"), 1, false);
  // What an operator took out of use is for him to put back.
  for (Node node : all_nodes(plane.database)) {
    node.drained = true;
    write_node(plane.database, node);
  }
  EXPECT_TRUE(is_idle(plane.database, kNoon));
}

TEST(Steer, TenantsDoNotSeeEachOther) {
  SmallControlPlane plane;
  const int64_t id = submit(plane.as("ada"), SmallControlPlane::request(), false).job.id;
  const auto error_of = [&](int64_t job) {
    try {
      cancel(plane.as("bob"), job);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  // A job of others and one that never was look the same.
  EXPECT_EQ(error_of(id), "no job 1 that you may see");
  EXPECT_EQ(error_of(99), "no job 99 that you may see");
  EXPECT_TRUE(throws(ErrorKind::not_found, [&] { visible_job(plane.as("bob"), id); }));
  EXPECT_TRUE(throws(ErrorKind::not_found, [&] { requeue(plane.as("bob"), id); }));
  EXPECT_TRUE(throws(ErrorKind::not_found, [&] { set_held(plane.as("bob"), id, true); }));
  EXPECT_TRUE(visible_jobs(plane.as("bob"), false, 100).empty());
  EXPECT_EQ(visible_projects(plane.as("bob")), std::vector<std::string>{"speech"});
  EXPECT_EQ(visible_users(plane.as("bob")), (std::vector<std::string>{"bob", "root"}));
  EXPECT_EQ(visible_users(plane.as("viv")),
            (std::vector<std::string>{"ada", "dora", "olaf", "root", "viv"}));
  create_user(plane.as("root"), "eve");
  EXPECT_EQ(visible_users(plane.as("eve")), std::vector<std::string>{"eve"});
  EXPECT_EQ(visible_users(plane.as("root")), all_users(plane.database));
  EXPECT_EQ(visible_jobs(plane.as("viv"), true, 100).size(), 1U);
  EXPECT_EQ(find_job(plane.database, id)->state, JobState::pending);
}

TEST(Tokens, AreStoredHashedAndExpire) {
  SmallControlPlane plane;
  const std::string token = issue_token(plane.as("ada"), "ada", kNoon + 1000);
  EXPECT_EQ(user_of_token(plane.database, token, kNoon), "ada");
  EXPECT_FALSE(user_of_token(plane.database, token, kNoon + 1000));
  EXPECT_FALSE(user_of_token(plane.database, token + "0", kNoon));
  EXPECT_FALSE(user_of_token(plane.database, "", kNoon));
  const std::string secret(split(token, '-')[2]);
  // Not in any table.
  std::vector<std::string> tables;
  Query names = plane.database.query("SELECT name FROM sqlite_master WHERE type = 'table'");
  while (names.next()) tables.push_back(names.text(0));
  EXPECT_GE(tables.size(), 10U);
  for (const std::string& table : tables) {
    const std::string sql = "SELECT * FROM " + table;
    Query rows = plane.database.query(sql.c_str());
    while (rows.next()) {
      for (int column = 0; column < 25; ++column) {
        EXPECT_EQ(rows.text(column).find(secret), std::string::npos) << table;
      }
    }
  }
  withdraw_token(plane.as("ada"), std::string(split(token, '-')[1]));
  EXPECT_FALSE(user_of_token(plane.database, token, kNoon));
}

TEST(Administration, OneAdminRemains) {
  SmallControlPlane plane;
  const std::string why = "at least one admin";
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { revoke(plane.as("root"), "root", kAllProjects); }, why));
  EXPECT_TRUE(throws(
      ErrorKind::usage,
      [&] {
        grant(plane.as("root"), {"root", kAllProjects, Role::viewer});
      },
      why));
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { disable_user(plane.as("root"), "root", true); }, why));
  EXPECT_EQ(role_of(plane.database, "root", "vision"), Role::admin);
  grant(plane.as("root"), {"olaf", kAllProjects, Role::admin});
  revoke(plane.as("root"), "root", kAllProjects);
  EXPECT_FALSE(role_of(plane.database, "root", "vision"));
}

TEST(Submit, UnprintableNamesAreRefused) {
  SmallControlPlane plane;
  const auto refused = [&](const char* why, auto&& change) {
    JobRequest request = SmallControlPlane::request();
    change(request);
    return throws(
        ErrorKind::usage, [&] { submit(plane.as("ada"), request, false); }, why);
  };
  for (const std::string name : {"", "\x1b[31mred", "two\nlines", "a\tb"}) {
    EXPECT_TRUE(refused("is not a valid job name", [&](JobRequest& r) { r.name = name; })) << name;
  }
  EXPECT_TRUE(refused("bytes in one line", [](JobRequest& r) { r.name.assign(201, 'n'); }));
  EXPECT_TRUE(refused("not UTF-8", [](JobRequest& r) { r.name = "\xff"; }));
  EXPECT_TRUE(refused("not UTF-8", [](JobRequest& r) { r.run_folder = "/runs/\xfe"; }));
  // The lowest of all integers has no opposite: it would come first in the line.
  EXPECT_TRUE(refused("is not from -1000000 to 1000000",
                      [](JobRequest& r) { r.priority = std::numeric_limits<int64_t>::min(); }));
  EXPECT_TRUE(live_jobs(plane.database).empty());
  JobRequest request = SmallControlPlane::request();
  request.name = std::string(198, 'n') + "é";
  request.priority = -1'000'000;
  EXPECT_EQ(submit(plane.as("ada"), request, false).job.request.name, request.name);
}

TEST(Administration, RevokesExistingRolesOnly) {
  SmallControlPlane plane;
  const std::string why = "has no role in";
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { revoke(plane.as("root"), "ada", "visoin"); }, why));
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { revoke(plane.as("root"), "adda", "vision"); }, why));
  EXPECT_FALSE(audit_lines(plane.database, 1, "").front()["allowed"]);
  EXPECT_EQ(role_of(plane.database, "ada", "vision"), Role::submitter);
  revoke(plane.as("root"), "ada", "vision");
  EXPECT_FALSE(role_of(plane.database, "ada", "vision"));
}

TEST(Administration, NoUserIsNamedController) {
  SmallControlPlane plane;
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { create_user(plane.as("root"), "controller"); },
      "choose another name"));
  Database fresh(":memory:");
  prepare_schema(fresh);
  EXPECT_TRUE(throws(ErrorKind::usage, [&] {
    create_control_plane({fresh, "controller", kNoon}, {"n1", 4, 0, true, false, ""}, {});
  }));
}

TEST(Administration, DisabledUsersAreReported) {
  SmallControlPlane plane;
  disable_user(plane.as("root"), "ada", true);
  const std::string why = "`tutti admin user ada --enable`";
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { create_user(plane.as("root"), "ada"); }, why));
  EXPECT_TRUE(throws(
      ErrorKind::usage,
      [&] {
        grant(plane.as("root"), {"ada", "speech", Role::viewer});
      },
      why));
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { issue_token(plane.as("root"), "ada", kNoon + 1000); }, why));
  EXPECT_TRUE(throws(
      ErrorKind::usage,
      [&] {
        grant(plane.as("root"), {"eve", "speech", Role::viewer});
      },
      "user 'eve' is not known; known: ada, bob"));
  disable_user(plane.as("root"), "ada", false);
  EXPECT_EQ(role_of(plane.database, "ada", "vision"), Role::submitter);
}

}  // namespace
}  // namespace tutti::control
