// Rounds of the controller where its launcher cannot do what it is told to.

#include "tutti/control/controller.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tutti/control/job_table.h"
#include "tutti/control/test_support.h"

namespace tutti::control {
namespace {

// Launches run for ever; for one job nothing can be written.
class StuckLauncher : public Launcher {
 public:
  void start(const LaunchOrder& order) override {
    check(order.key);
    running.insert(order.key.job);
  }
  LaunchStatus status(const LaunchKey& key) override {
    LaunchStatus status;
    if (running.count(key.job) > 0) status.phase = LaunchPhase::running;
    return status;
  }
  void stop(const LaunchKey& key) override { check(key); }
  void kill(const LaunchKey& key) override { check(key); }

  int64_t stuck = 0;  // a job; 0: none
  std::set<int64_t> running;

 private:
  void check(const LaunchKey& key) const {
    if (key.job == stuck) fail(ErrorKind::io, "its folder cannot be written");
  }
};

class ControllerTest : public testing::Test {
 protected:
  int64_t submit_one() {
    JobRequest request = SmallPlace::request();
    request.cores = 1;
    return submit(place_.as("ada"), request, false).job.id;
  }
  Job job(int64_t id) { return *find_job(place_.database, id); }
  void tick() { Controller(place_.database, launcher_).tick(kNoon); }

  SmallPlace place_;
  StuckLauncher launcher_;
};

TEST_F(ControllerTest, OneThatCannotBeStartedIsNotInTheWayOfOthers) {
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

TEST_F(ControllerTest, OneThatCannotBeEndedIsNotInTheWayOfOthers) {
  const int64_t first = submit_one();
  launcher_.stuck = first;
  tick();
  cancel(place_.as("ada"), first);
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

}  // namespace
}  // namespace tutti::control
