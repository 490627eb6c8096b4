// A backup replaces the records: later changes are replayed from the audit log.

#include "tutti/control/audit/restore.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/approval.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/launches/fault_files.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

namespace fs = std::filesystem;

// Launches run until a test scripts their end.
class ScriptedLauncher : public Launcher {
 public:
  void start(const LaunchOrder& order) override {
    now_[order.key.job] = {};
    ++starts;
  }
  LaunchStatus status(const LaunchKey& key) override {
    if (const auto newer = newest_.find(key.job);
        newer != newest_.end() && key.generation < newer->second) {
      LaunchStatus passed = passed_;
      passed.phase = LaunchPhase::superseded;
      passed.newer_generation = newer->second;
      return passed;
    }
    LaunchStatus status = now_[key.job];
    if (status.phase == LaunchPhase::unknown) status.phase = LaunchPhase::running;
    return status;
  }
  void stop(const LaunchKey& key) override { end(key.job, 75, now_[key.job].elapsed_ms); }
  void kill(const LaunchKey& key) override { end(key.job, 137, now_[key.job].elapsed_ms); }
  void runs_for(int64_t job, int64_t elapsed_ms) { now_[job].elapsed_ms = elapsed_ms; }
  void end(int64_t job, int code, int64_t elapsed_ms) {
    now_[job].phase = LaunchPhase::ended;
    now_[job].exit_code = code;
    now_[job].elapsed_ms = elapsed_ms;
  }
  // Launches of the job before `generation` are gone, and took what `passed` says.
  void goes_on_with(int64_t job, int64_t generation, const LaunchStatus& passed) {
    newest_[job] = generation;
    passed_ = passed;
  }
  int starts = 0;

 private:
  std::map<int64_t, LaunchStatus> now_;
  std::map<int64_t, int64_t> newest_;
  LaunchStatus passed_;
};

class Restore : public testing::Test {
 protected:
  Restore() : path_(fs::path(testing::TempDir()) / ("tutti_restore_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    database_ = open_control(files_, folder());
    Site site;
    site.micro_usd_per_node_hour = 3'600'000;
    create_control_plane({*database_, "root", kNoon}, {"n1", 4, 0, true, false, ""}, site);
    Project project;
    project.name = "vision";
    define_project(root(), project);
    create_user(root(), "ada");
    grant(root(), {"ada", "vision", Role::submitter});
  }
  ~Restore() override {
    database_.reset();
    fs::remove_all(path_);
  }
  ControlFolder folder() const { return {path_.string()}; }
  std::string backup() const { return (path_ / "backup.db").string(); }
  Caller root() { return {*database_, "root", kNoon}; }
  Caller ada() { return {*database_, "ada", kNoon}; }
  void tick(int64_t seconds) {
    Controller controller(*database_, launcher_);
    controller.tick(kNoon + seconds * 1000);
  }
  int64_t submit_one(int64_t cores = 1) {
    JobRequest request = SmallControlPlane::request();
    request.cores = cores;
    return submit(ada(), request, false).job.id;
  }
  void back_up() { database_->copy_to(backup()); }
  Restored bring_back() {
    export_audit(*database_, files_, folder().audit());
    database_.reset();
    return restore(files_, folder(), backup(), kNoon, [](Database&) {});
  }

  FileSystem& files_ = posix_file_system();
  const fs::path path_;
  std::unique_ptr<Database> database_;
  ScriptedLauncher launcher_;
};

// Everything that people and ledgers see of jobs.
std::string snapshot_of(Database& database) {
  std::string text;
  for (const Job& job : newest_jobs(database, "", 100)) {
    text += std::to_string(job.id) + " " + job.user + " " + state_name(job.state) + " " +
            reason_name(job.reason) + " " + std::to_string(job.generation) + " " +
            std::to_string(job.held) + " " + std::to_string(job.run_ms) + " " +
            std::to_string(job.exit_code.value_or(-1)) + " " + std::to_string(job.requeues) + " " +
            std::to_string(job.attempts) + " " + dump_json(to_json(job.request)) + "\n";
  }
  for (const LedgerEntry& entry : ledger_entries(database, "", "")) {
    text += "ledger " + std::to_string(entry.job) + " " + std::to_string(entry.generation) + " " +
            entry.month + " " + entry.user + " " + dump_json(to_json(entry.spend)) + "\n";
  }
  for (const Claim& claim : all_claims(database)) {
    text += "claim " + std::to_string(claim.job) + " " + claim.node + " " +
            std::to_string(claim.cores) + "\n";
  }
  return text;
}

TEST_F(Restore, ChangesSinceTheBackupAreReplayed) {
  const int64_t waits = submit_one();      // 1 ends after the backup
  const int64_t cancelled = submit_one();  // 2 is cancelled after it, waiting
  const int64_t held = submit_one();       // 3 is held after it
  define_node(root(), {"n1", 4, 0, true, true, ""});
  back_up();
  set_held(ada(), held, true);
  cancel(ada(), cancelled);
  define_node(root(), {"n1", 4, 0, true, false, ""});
  const int64_t later = submit_one(2);  // 4 is submitted after it, requeued once, and ends
  const int64_t runs = submit_one();    // 5 still runs
  tick(0);
  EXPECT_EQ(launcher_.starts, 3);
  tick(1);
  launcher_.end(waits, 0, 30'000);
  launcher_.end(later, 75, 90'000);
  tick(30);
  tick(31);
  tick(32);
  EXPECT_EQ(launcher_.starts, 4);
  launcher_.end(later, 0, 7'000);
  launcher_.runs_for(runs, 0);
  tick(40);
  const std::string before = snapshot_of(*database_);
  ASSERT_NE(before.find("COMPLETED"), std::string::npos) << before;

  Restored restored = bring_back();
  EXPECT_GT(restored.lines, 10);
  EXPECT_TRUE(restored.not_repeated.empty()) << restored.not_repeated;
  EXPECT_TRUE(fs::exists(restored.kept));
  EXPECT_EQ(snapshot_of(*restored.database), before);
  verify_ledger(*restored.database);
  export_audit(*restored.database, files_, folder().audit());
  EXPECT_TRUE(verify_audit(*restored.database, files_, folder().audit()).intact());

  // Operation continues: nothing starts twice, what runs ends.
  database_ = std::move(restored.database);
  launcher_.end(runs, 0, 50'000);
  tick(60);
  EXPECT_EQ(launcher_.starts, 4);
  EXPECT_EQ(find_job(*database_, runs)->state, JobState::completed);
  EXPECT_EQ(submit_one(), 6);
  verify_ledger(*database_);
}

// Of launches recorded only by their folders, and then by the audit log of their adoption.
TEST_F(Restore, CostsOfAdoptedLaunchesSurviveASecondRestore) {
  const int64_t job = submit_one();
  tick(0);
  tick(1);
  back_up();
  export_audit(*database_, files_, folder().audit());
  database_.reset();
  fs::remove(folder().audit());
  database_ = restore(files_, folder(), backup(), kNoon, [](Database&) {}).database;
  LaunchStatus passed;
  passed.elapsed_ms = 40'000;
  passed.measured_micro_kwh = 123;
  passed.exit_code = 75;
  launcher_.goes_on_with(job, 3, passed);
  for (int second = 2; second < 5; ++second) tick(second);
  ASSERT_EQ(find_job(*database_, job)->generation, 3);
  launcher_.end(job, 0, 20'000);
  tick(60);
  ASSERT_EQ(find_job(*database_, job)->state, JobState::completed);
  ASSERT_EQ(spent_by_job(*database_, job).micro_usd, 3'600'000 / 4 * 100 / 3600);
  const std::string before = snapshot_of(*database_);
  const Restored restored = bring_back();
  EXPECT_TRUE(restored.not_repeated.empty()) << restored.not_repeated;
  EXPECT_EQ(snapshot_of(*restored.database), before);
  EXPECT_EQ(launches_of(*restored.database, job).at(1).exit_code, 75);
  verify_ledger(*restored.database);
}

TEST_F(Restore, ManuallyRequeuedJobsKeepTheirAttempts) {
  const int64_t job = submit_one();
  tick(0);
  launcher_.end(job, exit_do_not_restart, 5'000);
  tick(10);
  ASSERT_EQ(find_job(*database_, job)->state, JobState::failed);
  ASSERT_EQ(find_job(*database_, job)->attempts, 1);
  back_up();
  requeue(ada(), job);
  const std::string before = snapshot_of(*database_);
  const Restored restored = bring_back();
  EXPECT_EQ(snapshot_of(*restored.database), before);
  EXPECT_EQ(find_job(*restored.database, job)->attempts, 0);
}

TEST_F(Restore, NewIncidentsDoNotReuseFilesOfForgottenOnes) {
  Incident incident;
  incident.job = submit_one();
  back_up();
  for (int i = 0; i < 3; ++i) add_incident(*database_, incident);
  EXPECT_EQ(write_incident_files(*database_, files_, folder().incidents(), 0), 3);
  const Restored restored = bring_back();
  EXPECT_TRUE(incidents_of(*restored.database, incident.job).empty());
  add_incident(*restored.database, incident);
  EXPECT_EQ(incidents_of(*restored.database, incident.job).at(0).id, 4);
  EXPECT_EQ(write_incident_files(*restored.database, files_, folder().incidents(), 0), 4);
  EXPECT_TRUE(fs::exists(folder().incidents() + "/000004.json"));
}

TEST_F(Restore, DeploymentsAndTheirRuleAreReplayed) {
  back_up();
  Project project = *find_project(*database_, "vision");
  project.approved_only = true;
  define_project(root(), project);
  grant(root(), {"ada", "vision", Role::deployer});
  approve(root(), {"vision", "aa11", "", 7, "", "", 0});
  const int64_t id = submit(ada(), SmallControlPlane::deployment(), false).job.id;
  const Job before = *find_job(*database_, id);
  bring_back();
  database_ = open_control(files_, folder());
  EXPECT_TRUE(find_project(*database_, "vision")->approved_only);
  const auto after = find_job(*database_, id);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->request, before.request);
  EXPECT_EQ(role_of(*database_, "ada", "vision"), Role::deployer);
}

TEST_F(Restore, RevokedRolesStayRevoked) {
  const std::string token = issue_token(root(), "ada", kNoon + 1'000'000);
  create_user(root(), "eve");
  grant(root(), {"eve", "vision", Role::operator_});
  back_up();
  withdraw_token(root(), token.substr(6, 12));
  revoke(root(), "eve", "vision");
  create_user(root(), "bob");
  grant(root(), {"bob", "vision", Role::viewer});
  Project vision = *find_project(*database_, "vision");
  vision.budget.micro_usd = 12'345'678;
  vision.max_jobs = 3;
  define_project(root(), vision);
  Site site = read_site(*database_);
  site.micro_usd_per_node_hour = 7;
  site.pue = 1.25;
  define_site(root(), site);
  issue_token(root(), "ada", kNoon + 1'000'000);
  Restored restored = bring_back();
  Database& database = *restored.database;
  EXPECT_EQ(restored.not_repeated, Json({{"issue token", 1}}));
  EXPECT_FALSE(user_of_token(database, token, kNoon));
  EXPECT_FALSE(role_of(database, "eve", "vision"));
  EXPECT_EQ(role_of(database, "bob", "vision"), Role::viewer);
  const Project found = *find_project(database, "vision");
  EXPECT_EQ(found.budget, vision.budget);
  EXPECT_EQ(found.max_jobs, 3);
  EXPECT_EQ(read_site(database).micro_usd_per_node_hour, 7);
  EXPECT_EQ(read_site(database).pue, 1.25);
}

TEST_F(Restore, DamagedAndForeignBackupsAreRefusedAndChangeNothing) {
  back_up();
  export_audit(*database_, files_, folder().audit());
  const std::string good = read_file(files_, backup());
  EXPECT_TRUE(throws(
      ErrorKind::not_found, [&] { restore(files_, folder(), "nowhere", kNoon, {}); }, "nowhere"));
  database_.reset();
  const std::string records = read_file(files_, folder().database());
  std::string bad = good;
  for (size_t at = bad.size() / 2; at < bad.size(); ++at) bad[at] = '\x5a';
  write_file_atomic(files_, backup(), bad);
  EXPECT_TRUE(throws(
      ErrorKind::corrupt, [&] { restore(files_, folder(), backup(), kNoon, [](Database&) {}); },
      "not an intact backup"));
  write_file_atomic(files_, backup(), good);
  EXPECT_TRUE(throws(ErrorKind::permission, [&] {
    restore(files_, folder(), backup(), kNoon,
            [](Database&) { fail(ErrorKind::permission, "no"); });
  }));
  std::string log = read_file(files_, folder().audit());
  log[10] = 'x';
  write_file_atomic(files_, folder().audit(), log);
  EXPECT_TRUE(throws(
      ErrorKind::corrupt, [&] { restore(files_, folder(), backup(), kNoon, [](Database&) {}); },
      "another site"));
  EXPECT_EQ(read_file(files_, folder().database()), records);
  EXPECT_FALSE(fs::exists(folder().database() + ".restoring"));
}

// After a restore without the audit log the history of the site diverges from the former one.
TEST_F(Restore, BackupsOfAbandonedHistoriesAreRefused) {
  back_up();
  submit_one();
  export_audit(*database_, files_, folder().audit());
  const std::string given_up = (path_ / "given-up.db").string();
  database_->copy_to(given_up);
  database_.reset();
  fs::remove(folder().audit());
  database_ = restore(files_, folder(), backup(), kNoon, [](Database&) {}).database;
  for (int i = 0; i < 3; ++i) submit_one(2);
  export_audit(*database_, files_, folder().audit());
  database_.reset();
  const std::string records = read_file(files_, folder().database());
  EXPECT_TRUE(throws(
      ErrorKind::corrupt, [&] { restore(files_, folder(), given_up, kNoon, [](Database&) {}); },
      "they part at line"));
  EXPECT_EQ(read_file(files_, folder().database()), records);
}

TEST_F(Restore, MissingRecordsAreNotRecreated) {
  back_up();
  export_audit(*database_, files_, folder().audit());
  database_.reset();
  for (const bool empty : {false, true}) {
    fs::remove(folder().database());
    if (empty) std::ofstream(folder().database()).flush();
    EXPECT_TRUE(throws(
        ErrorKind::corrupt, [&] { open_control(files_, folder()); }, "controller restore"));
  }
  EXPECT_NE(restore(files_, folder(), backup(), kNoon, [](Database&) {}).database, nullptr);
}

}  // namespace
}  // namespace tutti::control
