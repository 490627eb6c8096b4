// Rounds of the controller where its launcher cannot carry out requests.

#include "tutti/control/controller/controller.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/node_health.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

// Launches run for ever; for one job nothing can be written.
class StuckLauncher : public Launcher {
 public:
  void start(const LaunchOrder& order) override {
    check(order.key);
    last = order;
    running.insert(order.key.job);
  }
  LaunchStatus status(const LaunchKey& key) override {
    LaunchStatus status;
    if (running.count(key.job) > 0) status.phase = LaunchPhase::running;
    if (queued && running.count(key.job) > 0) {
      status.phase = stopped.count(key.job) > 0 ? LaunchPhase::failed : LaunchPhase::starting;
      status.detail = "in a queue";
    }
    status.elapsed_ms = elapsed_ms;
    if (saves && stopped.count(key.job) > 0) {
      status.phase = LaunchPhase::ended;
      status.exit_code = 75;
    }
    return status;
  }
  void stop(const LaunchKey& key) override {
    check(key);
    stopped.insert(key.job);
  }
  void kill(const LaunchKey& key) override {
    check(key);
    killed.insert(key.job);
  }

  int64_t stuck = 0;  // a job; 0: none
  int64_t elapsed_ms = 0;
  bool queued = false;  // it waits outside, and leaves when asked to stop
  bool saves = false;   // and ends when asked to stop
  std::set<int64_t> stopped;
  std::set<int64_t> killed;
  std::set<int64_t> running;
  LaunchOrder last;

 private:
  void check(const LaunchKey& key) const {
    if (key.job == stuck) fail(ErrorKind::io, "its folder cannot be written");
  }
};

class ControllerTest : public testing::Test {
 protected:
  int64_t submit_one() {
    JobRequest request = SmallControlPlane::request();
    request.cores = 1;
    return submit(plane_.as("ada"), request, false).job.id;
  }
  Job job(int64_t id) { return *find_job(plane_.database, id); }
  void tick() { Controller(plane_.database, launcher_).tick(kNoon); }

  SmallControlPlane plane_;
  StuckLauncher launcher_;
};

TEST_F(ControllerTest, JobsThatCannotStartDoNotBlockOthers) {
  const int64_t first = submit_one();
  const int64_t second = submit_one();
  launcher_.stuck = first;
  for (int round = 0; round < 2; ++round) {  // when it begins, and when it is looked after
    tick();
    EXPECT_EQ(job(first).state, JobState::configuring);
    EXPECT_EQ(job(first).detail, "its folder cannot be written");
    EXPECT_EQ(launcher_.running, std::set<int64_t>{second});
  }
  EXPECT_EQ(job(second).state, JobState::running);
  launcher_.stuck = 0;
  tick();
  tick();
  EXPECT_EQ(job(first).state, JobState::running);
  EXPECT_EQ(job(first).detail, "");
}

TEST_F(ControllerTest, JobsThatCannotEndDoNotBlockOthers) {
  const int64_t first = submit_one();
  launcher_.stuck = first;
  tick();
  cancel(plane_.as("ada"), first);
  const std::string detail = job(first).detail;
  const int64_t second = submit_one();
  tick();
  EXPECT_EQ(job(first).state, JobState::completing);
  EXPECT_EQ(job(first).detail, detail);
  EXPECT_EQ(launcher_.running, std::set<int64_t>{second});
  launcher_.stuck = 0;
  tick();
  EXPECT_EQ(job(first).state, JobState::cancelled);
}

// One that ignores its stop request, and is cancelled meanwhile.
TEST_F(ControllerTest, CancellingDoesNotExtendTheBudget) {
  JobRequest request = SmallControlPlane::request();
  request.budget.node_microhours = 100 * kMicro / 3600;  // 100 s
  const int64_t id = submit(plane_.as("ada"), request, false).job.id;
  for (const int64_t second : {0, 0, 60, 101}) {
    launcher_.elapsed_ms = second * 1000;
    tick();
  }
  ASSERT_EQ(job(id).stop, Stop::job_budget);
  cancel(plane_.as("ada"), id);
  for (int64_t second = 101; second < 160; ++second) {
    launcher_.elapsed_ms = second * 1000;
    tick();
  }
  EXPECT_EQ(launcher_.killed, std::set<int64_t>{id});
}

TEST_F(ControllerTest, AJobWithoutBudgetIsNotLaunchedAgain) {
  JobRequest request = SmallControlPlane::request();
  request.budget.node_microhours = 100 * kMicro / 3600;  // 100 s
  const int64_t id = submit(plane_.as("ada"), request, false).job.id;
  tick();
  tick();
  requeue(plane_.as("ada"), id);
  launcher_.saves = true;
  launcher_.elapsed_ms = 90'000;
  tick();  // asked to stop, with a little left
  launcher_.elapsed_ms = 101'000;
  tick();
  EXPECT_EQ(job(id).state, JobState::cancelled);
  EXPECT_EQ(job(id).reason, Reason::job_budget);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [&] { requeue(plane_.as("ada"), id); },
      "is used up: 0.028055 of 0.027777"));
}

// Its nodes are another system's to give, and its deadline comes first.
TEST_F(ControllerTest, JobsStartingAtTheirDeadlineAreEnded) {
  for (const bool known : {true, false}) {
    JobRequest request = SmallControlPlane::request();
    request.deadline_ms = kNoon + 60'000;
    const int64_t id = submit(plane_.as("ada"), request, false).job.id;
    launcher_.queued = true;
    launcher_.stuck = known ? 0 : id;  // never asked: it cannot begin
    Controller controller(plane_.database, launcher_);
    controller.tick(kNoon);
    controller.tick(kNoon + 59'000);
    EXPECT_EQ(job(id).state, JobState::configuring);
    EXPECT_EQ(launcher_.stopped.count(id), 0U);
    launcher_.stuck = 0;
    controller.tick(kNoon + 60'000);
    EXPECT_EQ(launcher_.stopped.count(id), known ? 1U : 0U);
    EXPECT_EQ(launcher_.running.count(id), known ? 1U : 0U);
    controller.tick(kNoon + 61'000);
    EXPECT_EQ(job(id).state, JobState::deadline);
    EXPECT_EQ(job(id).reason, Reason::deadline_passed);
  }
}

// Without a controller it ends by itself.
TEST_F(ControllerTest, ALaunchCarriesItsDeadline) {
  JobRequest request = SmallControlPlane::request();
  request.deadline_ms = kNoon + 60'000;
  submit(plane_.as("ada"), request, false);
  tick();
  EXPECT_EQ(launcher_.last.stop_after_ms, 60'000);
}

// Its corpus was prepared again, with another class, while it was pending.
TEST_F(ControllerTest, DataClassIsCheckedBeforeEachLaunch) {
  JobRequest request = SmallControlPlane::request();
  request.cores = 1;
  request.data_class = "public";
  const int64_t id = submit(plane_.as("ada"), request, false).job.id;
  DataLabel label{"restricted", "corpus 'c' of data.train", ""};
  Controller controller(plane_.database, launcher_, {}, [&](const Job&) { return label; });
  controller.tick(kNoon);
  controller.tick(kNoon);
  EXPECT_TRUE(launcher_.running.empty());
  EXPECT_EQ(job(id).state, JobState::pending);
  EXPECT_EQ(job(id).reason, Reason::site_rule);
  EXPECT_EQ(job(id).request.data_class, "restricted");
  EXPECT_EQ(audit_lines(plane_.database, 1, kRelabel).size(), 1U);
  label.data_class = "public";  // what was stated stays stated
  controller.tick(kNoon);
  EXPECT_TRUE(launcher_.running.empty());
  request.run_folder = "other";
  const int64_t other = submit(plane_.as("ada"), request, false).job.id;
  controller.tick(kNoon);
  EXPECT_EQ(launcher_.running, std::set<int64_t>{other});
}

TEST_F(ControllerTest, UnhealthyNodesTakeNoJobs) {
  NodeReport sick;
  sick.node = "n1";
  sick.failures = {{"memory", "slow"}};
  NodeReport unread;
  unread.node = "n2";
  unread.problem = "cannot be read";
  EXPECT_EQ(follow_health(plane_.database, {sick, unread}, kNoon), 1);
  EXPECT_EQ(follow_health(plane_.database, {sick, unread}, kNoon), 0);
  submit_one();
  tick();
  ASSERT_EQ(launcher_.last.claims.size(), 1U);
  EXPECT_EQ(launcher_.last.claims.front().node, "n2");
  EXPECT_EQ(all_nodes(plane_.database).front().reason, "unhealthy: memory: slow");
  NodeReport well = sick;
  well.healthy = true;
  EXPECT_EQ(follow_health(plane_.database, {well}, kNoon), 1);
  EXPECT_TRUE(all_nodes(plane_.database).front().up);
  EXPECT_EQ(all_nodes(plane_.database).front().reason, "");
}

// They block no other job, and keep their request between two rounds.
TEST_F(ControllerTest, RoundsReadOnlyWhatIsNew) {
  Controller controller(plane_.database, launcher_);
  const int64_t first = submit_one();
  JobRequest large = SmallControlPlane::request();
  large.nodes = 2;
  const int64_t second = submit(plane_.as("ada"), large, false).job.id;
  controller.tick(kNoon);
  controller.tick(kNoon);
  EXPECT_EQ(job(second).reason, Reason::resources);
  cancel(plane_.as("ada"), first);
  launcher_.saves = true;
  for (int round = 0; round < 3; ++round) controller.tick(kNoon);
  EXPECT_EQ(launcher_.last.key.job, second);
  EXPECT_EQ(launcher_.last.claims.size(), 2U);
  EXPECT_EQ(launcher_.last.command, large.command);
}

}  // namespace
}  // namespace tutti::control
