#include "tutti/control/schedule/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

// Nodes of 4 cores; jobs are added in the order of submission.
struct Line {
  Snapshot snapshot;
  explicit Line(int nodes) {
    snapshot.now_ms = kNoon;
    for (int i = 1; i <= nodes; ++i) {
      snapshot.nodes.push_back({"n" + std::to_string(i), 4, 0, true, false, ""});
    }
    Project project;
    project.name = "vision";
    snapshot.projects["vision"] = {project, {}};
  }
  Job& add(int64_t nodes, int64_t cores, int64_t seconds) {
    Job job;
    job.id = static_cast<int64_t>(snapshot.jobs.size()) + 1;
    job.request = SmallControlPlane::request();
    job.request.nodes = nodes;
    job.request.cores = cores;
    job.request.time_limit_ms = seconds * 1000;
    job.submitted_ms = kNoon;
    snapshot.jobs.push_back(job);
    return snapshot.jobs.back();
  }
  Job& add_running(const std::vector<std::string>& nodes, int64_t cores, int64_t seconds) {
    Job& job = add(static_cast<int64_t>(nodes.size()), cores, seconds);
    job.state = JobState::running;
    job.started_ms = kNoon;
    job.elapsed_ms = 2 * kLeastRunMs;
    for (const std::string& node : nodes) snapshot.claims.push_back({job.id, 0, node, cores, 0});
    return job;
  }
  Schedule plan() const { return schedule(snapshot); }
  std::vector<int64_t> started() const {
    std::vector<int64_t> ids;
    for (const Start& start : plan().starts) ids.push_back(start.job);
    return ids;
  }
  Wait wait(int64_t job) const {
    for (const Wait& each : plan().waits) {
      if (each.job == job) return each;
    }
    return {};
  }
};

using Ids = std::vector<int64_t>;

TEST(Schedule, PriorityThenDeadlineThenSubmission) {
  Line line(1);
  line.add(1, 0, 60);
  line.add(1, 0, 60).request.deadline_ms = kNoon + 1'000'000;
  line.add(1, 0, 60).request.deadline_ms = kNoon + 500'000;
  line.add(1, 0, 60).priority = 1;
  EXPECT_EQ(line.started(), Ids{4});
  EXPECT_EQ(line.plan().line, (Ids{3, 2, 1}));
  EXPECT_EQ(line.wait(1).ahead, 2U);
  EXPECT_EQ(line.wait(3).reason, Reason::resources);
  EXPECT_EQ(line.wait(2).reason, Reason::priority);
}

TEST(Schedule, WhoWaitsLongEnoughComesFirst) {
  Line line(1);
  line.add(1, 0, 60).priority = 5;
  line.add(1, 0, 60).submitted_ms = kNoon - 6 * kHourMilliseconds;
  EXPECT_EQ(line.started(), Ids{2});
}

TEST(Schedule, AllNodesOrNone) {
  Line line(3);
  line.add_running({"n1"}, 4, 600);
  line.add(3, 4, 60);
  EXPECT_TRUE(line.plan().starts.empty());
  EXPECT_EQ(line.wait(2).reason, Reason::resources);
}

// The first in line waits for n1 until it is free; what ends before that goes first, the rest not.
TEST(Schedule, BackfillsOnlyWithoutDelay) {
  Line line(2);
  line.add_running({"n1"}, 4, 600);
  line.add(2, 4, 60);
  line.add(1, 4, 700);  // would hold n2 for too long
  line.add(1, 4, 500);
  EXPECT_EQ(line.started(), Ids{4});
  EXPECT_EQ(line.wait(3).reason, Reason::priority);
  // A node that the promise does not need is free for any.
  line.snapshot.nodes.push_back({"n3", 4, 0, true, false, ""});
  line.snapshot.jobs[1].request.nodes = 1;
  line.snapshot.jobs[1].request.cores = 4;
  EXPECT_EQ(line.started(), (Ids{2, 3}));
}

TEST(Schedule, FullestNodesAreFilledFirst) {
  Line line(2);
  line.add_running({"n2"}, 3, 600);
  line.add(1, 1, 60);
  const Schedule plan = line.plan();
  ASSERT_EQ(plan.starts.size(), 1U);
  EXPECT_EQ(plan.starts.front().claims, (std::vector<Claim>{{2, 1, "n2", 1, 0}}));
}

TEST(Schedule, DrainedAndDownNodesTakeNothing) {
  Line line(2);
  line.snapshot.nodes[0].drained = true;
  line.snapshot.nodes[1].up = false;
  line.add(1, 1, 60);
  EXPECT_TRUE(line.plan().starts.empty());
}

TEST(Schedule, TheLowestAndYoungestMakeRoom) {
  Line line(3);
  line.add_running({"n1"}, 4, 600).priority = 1;
  line.add_running({"n2"}, 4, 600).priority = 0;
  line.add_running({"n3"}, 4, 600).started_ms = kNoon + 1;
  line.add(1, 4, 60).priority = 2;
  auto preemptions = line.plan().preemptions;
  ASSERT_EQ(preemptions.size(), 1U);
  EXPECT_EQ(preemptions.front().job, 3);
  EXPECT_EQ(preemptions.front().for_job, 4);
  // Once one is on its way out, no other is asked.
  line.snapshot.jobs[2].state = JobState::completing;
  EXPECT_TRUE(line.plan().preemptions.empty());
  // Neither those who may not be, nor the young, nor equals.
  line.snapshot.jobs[2].state = JobState::running;
  line.snapshot.jobs[2].request.preemptible = false;
  line.snapshot.jobs[1].elapsed_ms = 0;
  EXPECT_EQ(line.plan().preemptions.front().job, 1);
  line.snapshot.jobs[3].priority = 1;
  EXPECT_TRUE(line.plan().preemptions.empty());
}

// Only what helps is preempted: one of the two small ones is in the way, both would have to go for
// nothing.
TEST(Schedule, PreemptsOnlyWhereItHelps) {
  Line line(2);
  line.add_running({"n1"}, 1, 600);
  line.add_running({"n2"}, 4, 600).request.preemptible = false;
  line.add(2, 4, 60).priority = 9;
  EXPECT_TRUE(line.plan().preemptions.empty());
  line.snapshot.jobs[2].request.nodes = 1;
  EXPECT_EQ(line.plan().preemptions.size(), 1U);
}

TEST(Schedule, QuotasHoldOneProjectAndNotTheOthers) {
  Line line(3);
  Project other;
  other.name = "speech";
  line.snapshot.projects["speech"] = {other, {}};
  line.snapshot.projects["vision"].project.max_jobs = 1;
  line.add(1, 4, 60);
  line.add(1, 4, 60);
  line.add(1, 4, 60).request.project = "speech";
  EXPECT_EQ(line.started(), (Ids{1, 3}));
  EXPECT_EQ(line.wait(2).reason, Reason::quota_jobs);
  line.snapshot.projects["vision"].project.max_jobs.reset();
  line.snapshot.projects["vision"].project.max_cores = 6;
  EXPECT_EQ(line.started(), (Ids{1, 3}));
  EXPECT_EQ(line.wait(2).reason, Reason::quota_cores);
}

TEST(Schedule, NamesBudgetsHoldsBackoffAndRules) {
  Line line(4);
  line.add(1, 4, 60).held = true;
  line.add(1, 4, 60).eligible_ms = kNoon + 10'000;
  line.add(1, 9, 60);
  line.add(1, 4, 60).request.data_class = "restricted";
  EXPECT_EQ(line.wait(1).reason, Reason::held);
  EXPECT_EQ(line.wait(2).reason, Reason::begin_time);
  EXPECT_EQ(line.wait(3).reason, Reason::never_fits);
  EXPECT_EQ(line.wait(4).reason, Reason::site_rule);
  line.snapshot.projects["vision"].project.budget.micro_usd = 0;
  line.snapshot.jobs[3].request.data_class = "public";
  EXPECT_EQ(line.wait(4).reason, Reason::budget);
  // A pause that no pause can be: the clock was set back.
  line.snapshot.projects["vision"].project.budget.micro_usd.reset();
  line.snapshot.jobs[1].eligible_ms = kNoon + 10 * kLongestPauseMs;
  EXPECT_EQ(line.started(), (Ids{2, 4}));
}

TEST(ExpectedStart, IsTheSchedulePlayedOn) {
  Line line(1);
  line.add_running({"n1"}, 4, 600);
  line.add(1, 4, 300);
  line.add(1, 4, 300);
  line.add(1, 4, 300).held = true;
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 600'000);
  EXPECT_EQ(expected_start_ms(line.snapshot, 3), kNoon + 900'000);
  EXPECT_FALSE(expected_start_ms(line.snapshot, 4));
  line.snapshot.jobs[2].priority = 1;
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 900'000);
  line.snapshot.claims.clear();
  line.snapshot.jobs.erase(line.snapshot.jobs.begin());
  EXPECT_EQ(expected_start_ms(line.snapshot, 3), kNoon);
}

// The time limit says when it is stopped, not when it is done.
TEST(ExpectedStart, PrefersForecastsToTimeLimits) {
  Line line(1);
  line.add_running({"n1"}, 4, 86'400).request.forecast.milliseconds = 600'000;
  line.add(1, 4, 300);
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 600'000);
  line.snapshot.jobs[0].request.time_limit_ms = 300'000;  // it will not come to its end
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 300'000);
}

// A run shows better than a forecast when it ends.
TEST(ExpectedStart, FollowsWhatRunsRecord) {
  Line line(1);
  line.add_running({"n1"}, 4, 86'400).request.forecast.milliseconds = 600'000;
  line.add(1, 4, 300);
  line.snapshot.ends_ms[1] = kNoon + 45'000;
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 45'000);
  line.snapshot.ends_ms[1] = kNoon + 7'200'000;
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 7'200'000);
  line.snapshot.ends_ms[1] = kNoon - 1;  // it is saving
  EXPECT_EQ(expected_start_ms(line.snapshot, 2), kNoon + 1'000);
}

// A line of thousands is not played to its end; it holds no list of others for each of its jobs.
TEST(ExpectedStart, OfALongLineIsExtrapolated) {
  Line line(1);
  for (int i = 0; i < 3000; ++i) line.add(1, 4, 60);
  const Schedule plan = line.plan();
  EXPECT_EQ(plan.starts.size(), 1U);
  EXPECT_EQ(plan.line.size(), 2999U);
  EXPECT_EQ(plan.waits.back().ahead, 2998U);
  const auto start = expected_start_ms(line.snapshot, 3000);
  ASSERT_TRUE(start.has_value());
  EXPECT_NEAR(static_cast<double>(*start - kNoon), 2999 * 60e3, 600e3);
}

}  // namespace
}  // namespace tutti::control
