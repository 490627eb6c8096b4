// The database when things go wrong: locked, full, damaged, not ours, from the future.

#include "tutti/control/store/database.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

namespace fs = std::filesystem;

class DatabaseFile : public testing::Test {
 protected:
  DatabaseFile() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~DatabaseFile() override { fs::remove_all(folder_); }
  std::string path(const char* name = "control.db") const { return (folder_ / name).string(); }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("tutti_control_database_" + std::to_string(::getpid()));
};

void found(Database& database) {
  prepare_schema(database);
  create_control_plane({database, "root", kNoon}, {"n1", 4, 0, true, false, ""}, Site{});
}

JobRequest request() { return SmallControlPlane::request(kDefaultProject); }

// No field that the scheduler looks at is as by default.
JobRequest unusual_request() {
  JobRequest request;
  request.project = kDefaultProject;
  request.command = {"train", "demo"};
  request.nodes = 3;
  request.cores = 5;
  request.gpus = 2;
  request.deadline_ms = kNoon + 7;
  request.time_limit_ms = 60'000;
  request.preemptible = false;
  request.forecast.milliseconds = 12'345;
  request.data_class = "public";
  request.data_source = "corpus 'news' of data.train";
  request.unlabelled_data = "corpus 'mail' of data.train";
  return request;
}

// Of the only job.
void expect_scheduled_as_asked(Database& database, const JobRequest& asked) {
  const std::vector<Job> jobs = jobs_to_schedule(database);
  ASSERT_EQ(jobs.size(), 1U);
  JobRequest expected;
  expected.project = asked.project;
  expected.nodes = asked.nodes;
  expected.cores = asked.cores;
  expected.gpus = asked.gpus;
  expected.deadline_ms = asked.deadline_ms;
  expected.time_limit_ms = asked.time_limit_ms;
  expected.preemptible = asked.preemptible;
  expected.forecast.milliseconds = asked.forecast.milliseconds;
  expected.data_class = asked.data_class;
  expected.data_source = asked.data_source;
  expected.unlabelled_data = asked.unlabelled_data;
  EXPECT_EQ(jobs.front().request, expected);
}

TEST_F(DatabaseFile, TransactionsRollBackUnlessCommitted) {
  Database database(path());
  found(database);
  {
    Transaction transaction(database);
    add_user(database, "gone", kNoon);
  }
  EXPECT_FALSE(has_user(database, "gone"));
  Database second(path());
  prepare_schema(second);
  EXPECT_TRUE(has_user(second, "root"));
}

TEST_F(DatabaseFile, ManyMayMakeItAtTheSameTime) {
  for (int file = 0; file < 20; ++file) {
    std::atomic<int> made = 0;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        try {
          Database database(path(std::to_string(file).c_str()));
          found(database);
          made += has_user(database, "root") ? 1 : 0;
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 4);
  }
}

TEST_F(DatabaseFile, LocksAreWaitedForThenNamed) {
  Database database(path());
  found(database);
  Database other(path(), 0.05);
  {
    Transaction transaction(database);
    EXPECT_TRUE(throws(
        ErrorKind::io, [&] { Transaction second(other); }, "locked"));
    // Readers are not in the way.
    EXPECT_EQ(all_users(other).size(), 1U);
  }
  EXPECT_EQ(submit({other, "root", kNoon}, request(), false).job.id, 1);
}

TEST_F(DatabaseFile, FullDisksChangeNothingAndAreTransient) {
  Database database(path());
  found(database);
  const Caller root{database, "root", kNoon};
  submit(root, request(), false);
  const AuditHead head = audit_head(database);
  {
    Query pages = database.query("PRAGMA page_count");
    pages.next();
    database.execute(("PRAGMA max_page_count = " + pages.text(0)).c_str());
  }
  JobRequest large = request();
  large.folder = std::string(1 << 20, 'x');
  EXPECT_TRUE(throws(ErrorKind::no_space, [&] { submit(root, large, false); }));
  EXPECT_EQ(audit_head(database).seq, head.seq);
  EXPECT_EQ(live_jobs(database).size(), 1U);
  database.execute("PRAGMA max_page_count = 1000000");
  EXPECT_EQ(submit(root, large, false).job.id, 2);
  database.check_integrity();
}

TEST_F(DatabaseFile, DamageIsFoundAndABackupReplacesIt) {
  {
    Database database(path());
    found(database);
    const Caller root{database, "root", kNoon};
    for (int i = 0; i < 50; ++i) submit(root, request(), false);
    database.copy_to(path("backup.db"));
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  }
  const auto size = fs::file_size(path());
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    const std::string noise(static_cast<size_t>(size) - 4096, '\x5a');
    file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
  }
  EXPECT_TRUE(throws(ErrorKind::corrupt, [&] {
    Database database(path());
    prepare_schema(database);
    database.check_integrity();
    live_jobs(database);
  }));
  fs::rename(path("backup.db"), path());
  fs::remove(path("control.db-wal"));
  fs::remove(path("control.db-shm"));
  Database database(path());
  prepare_schema(database);
  database.check_integrity();
  EXPECT_EQ(live_jobs(database).size(), 50U);
}

TEST_F(DatabaseFile, OtherFilesAndOtherVersionsAreRefused) {
  {
    Database database(path("theirs.db"));
    database.execute("CREATE TABLE t (x)");
    EXPECT_TRUE(throws(
        ErrorKind::corrupt, [&] { prepare_schema(database); }, "not a database of"));
  }
  {
    Database database(path());
    found(database);
    database.execute("PRAGMA user_version = 99");
    EXPECT_TRUE(throws(
        ErrorKind::unsupported, [&] { prepare_schema(database); }, "99"));
  }
  std::ofstream(path("text.db")) << std::string(8192, 'x');
  EXPECT_TRUE(throws(ErrorKind::corrupt, [&] { Database database(path("text.db")); }));
}

TEST_F(DatabaseFile, OlderSchemasAreMigrated) {
  {
    Database database(path());
    found(database);
    database.run(
        "INSERT INTO tokens (id, user, salt, hash, created_ms, expires_ms) SELECT 'old', "
        "name, '', '', 0, 1 FROM users LIMIT 1");
    Job job;
    job.user = "root";
    job.request = unusual_request();
    insert_job(database, job);
    database.execute(
        "DROP TRIGGER jobs_asked; DROP TRIGGER jobs_asked_anew; DROP INDEX jobs_scheduled; "
        "DROP INDEX jobs_project; DROP INDEX jobs_in_line; DROP INDEX jobs_ended; "
        "DROP INDEX jobs_run; "
        "ALTER TABLE jobs DROP COLUMN asked_nodes; ALTER TABLE jobs DROP COLUMN asked_cores; "
        "ALTER TABLE jobs DROP COLUMN asked_gpus; ALTER TABLE jobs DROP COLUMN deadline_ms; "
        "ALTER TABLE jobs DROP COLUMN time_limit_ms; ALTER TABLE jobs DROP COLUMN preemptible; "
        "ALTER TABLE jobs DROP COLUMN forecast_ms; ALTER TABLE jobs DROP COLUMN data_class; "
        "ALTER TABLE jobs DROP COLUMN data_source; ALTER TABLE jobs DROP COLUMN unlabelled_data; "
        "DROP INDEX jobs_deployed; ALTER TABLE projects DROP COLUMN approved_only; "
        "ALTER TABLE tokens DROP COLUMN parent; PRAGMA user_version = 1");
  }
  Database database(path());
  prepare_schema(database);
  Query version = database.query("PRAGMA user_version");
  ASSERT_TRUE(version.next());
  EXPECT_EQ(version.integer(0), kSchemaVersion);
  ASSERT_EQ(all_tokens(database).size(), 1U);
  EXPECT_EQ(all_tokens(database).front().parent, "");
  expect_scheduled_as_asked(database, unusual_request());
}

// The scheduler reads copies of the request, which later writes do not change.
TEST_F(DatabaseFile, TheSchedulerSeesTheRequest) {
  Database database(path());
  found(database);
  Job job;
  job.user = "root";
  job.request = unusual_request();
  job.id = insert_job(database, job);
  expect_scheduled_as_asked(database, job.request);
  job.request.nodes = 9;
  job.request.preemptible = true;
  job.request.data_class = "restricted";
  job.request.data_source = "corpus 'wards' of data.train";
  job.request.unlabelled_data = "corpus 'web' of data.validation";
  write_request(database, job);
  expect_scheduled_as_asked(database, job.request);
}

// The condition is written with the numbers of states.
TEST_F(DatabaseFile, LiveJobsAreThoseThatAreNotFinal) {
  Database database(path());
  for (int state = 0; state < kJobStates; ++state) {
    Query live = database.query("SELECT " JOB_IS_LIVE " FROM (SELECT ? AS state)", state);
    ASSERT_TRUE(live.next());
    EXPECT_EQ(live.integer(0) == 0, is_final(static_cast<JobState>(state))) << state;
  }
}

// A line of ten thousand jobs is read without their requests.
TEST_F(DatabaseFile, TheSchedulerReadsNoRequests) {
  Database database(path());
  found(database);
  Query plan = database.query(
      "EXPLAIN QUERY PLAN SELECT id, run_ms, asked_nodes, unlabelled_data FROM jobs INDEXED BY "
      "jobs_scheduled WHERE " JOB_IS_LIVE " ORDER BY id");
  ASSERT_TRUE(plan.next());
  EXPECT_NE(plan.text(3).find("USING COVERING INDEX jobs_scheduled"), std::string::npos)
      << plan.text(3);
  EXPECT_FALSE(plan.next());  // nor sorted
}

TEST_F(DatabaseFile, StatementsAreReentrant) {
  Database database(path());
  found(database);
  const char* sql = "SELECT name FROM users UNION SELECT name FROM projects ORDER BY name";
  Query outer = database.query(sql);
  int rows = 0;
  while (outer.next()) {
    Query inner = database.query(sql);
    while (inner.next()) ++rows;
  }
  EXPECT_EQ(rows, 4);
}

}  // namespace
}  // namespace tutti::control
