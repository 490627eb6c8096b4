#include "tutti/control/schedule/policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/base/error.h"
#include "tutti/control/schedule/schedule.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

using enum JobState;
using Path = std::vector<JobState>;

Job running_job() {
  Job job;
  job.id = 1;
  job.request = SmallControlPlane::request();
  job.state = JobState::running;
  return job;
}

End exited(int code, int64_t elapsed_ms = 120'000) {
  End end;
  end.exit_code = code;
  end.elapsed_ms = elapsed_ms;
  return end;
}

TEST(Judge, ExitCodesWithoutARequestToStop) {
  EXPECT_EQ(judge(running_job(), exited(0)).path, Path{completed});
  EXPECT_EQ(judge(running_job(), exited(75)).path, (Path{requeued, pending}));
  EXPECT_EQ(judge(running_job(), exited(75)).pause_ms, 0);
  EXPECT_EQ(judge(running_job(), exited(93)).path, Path{failed});
  EXPECT_EQ(judge(running_job(), exited(93)).reason, Reason::do_not_restart);
  EXPECT_EQ(judge(running_job(), exited(2)).reason, Reason::wrong_recipe);
  for (const int code : {1, 134, 137, 139}) {
    const Verdict verdict = judge(running_job(), exited(code));
    EXPECT_EQ(verdict.path, (Path{failed, requeued, pending})) << code;
    EXPECT_EQ(verdict.attempts, 1);
    EXPECT_TRUE(verdict.is_incident);
  }
  End lost;
  EXPECT_EQ(judge(running_job(), lost).path, (Path{node_fail, requeued, pending}));
  EXPECT_EQ(judge(running_job(), lost).reason, Reason::node_lost);
}

TEST(Judge, ADeploymentNeverCompletes) {
  Job job = running_job();
  job.request = SmallControlPlane::deployment();
  EXPECT_EQ(judge(job, exited(0)).path, (Path{failed, requeued, pending}));
  EXPECT_EQ(judge(job, exited(0)).pause_ms, pause_after(1));
  EXPECT_EQ(judge(job, exited(137)).path, (Path{failed, requeued, pending}));
  job.stop = Stop::cancel;
  EXPECT_EQ(judge(job, exited(0)).path, Path{cancelled});
  EXPECT_EQ(judge(job, exited(0)).detail, "");
  job.stop = Stop::requeue;
  EXPECT_EQ(judge(job, exited(0)).path, (Path{requeued, pending}));
  job.stop = Stop::budget;  // continues with a larger one
  EXPECT_EQ(judge(job, exited(0)).path, (Path{requeued, pending}));
}

TEST(Judge, OnlyConsecutiveFailuresUseUpAttempts) {
  Job job = running_job();
  job.attempts = 3;
  EXPECT_EQ(judge(job, exited(1)).path, Path{failed});
  EXPECT_EQ(judge(job, exited(1)).reason, Reason::attempts_used);
  // Saved and stopped at once, again and again, is not progress either.
  EXPECT_EQ(judge(job, exited(75, 1'000)).path, Path{failed});
  // Ten good minutes set the count back.
  EXPECT_EQ(judge(job, exited(1, 600'000)).attempts, 1);
  EXPECT_EQ(judge(job, exited(75)).attempts, 0);
}

TEST(Judge, BackoffDoublesUpTo15Minutes) {
  EXPECT_EQ(pause_after(1), 15'000);
  EXPECT_EQ(pause_after(2), 30'000);
  EXPECT_EQ(pause_after(6), 480'000);
  EXPECT_EQ(pause_after(7), kLongestPauseMs);
  EXPECT_EQ(pause_after(1'000'000), kLongestPauseMs);
}

TEST(Judge, RequestedStopsDecideTheFinalState) {
  const std::vector<std::pair<Stop, Path>> ends = {{Stop::cancel, {cancelled}},
                                                   {Stop::time_limit, {timeout}},
                                                   {Stop::deadline, {deadline}},
                                                   {Stop::job_budget, {cancelled}},
                                                   {Stop::preempt, {preempted, requeued, pending}},
                                                   {Stop::requeue, {requeued, pending}},
                                                   {Stop::budget, {requeued, pending}}};
  for (const auto& [stop, path] : ends) {
    Job job = running_job();
    job.stop = stop;
    for (const int code : {75, 1, 137, 93}) EXPECT_EQ(judge(job, exited(code)).path, path) << code;
    EXPECT_EQ(judge(job, End{}).path, path);
    EXPECT_EQ(judge(job, exited(0)).path, Path{completed});
  }
}

// Whatever comes out, the table of states allows every step of it.
TEST(Judge, EveryVerdictIsLegal) {
  for (int stop = 0; stop <= static_cast<int>(Stop::budget); ++stop) {
    for (int code = -1; code < 256; ++code) {
      for (const int64_t attempts : {0, 3}) {
        Job job = running_job();
        job.stop = static_cast<Stop>(stop);
        job.attempts = attempts;
        JobState at = job.stop == Stop::none ? JobState::running : completing;
        End end = exited(code);
        if (code < 0) end.exit_code.reset();
        for (const JobState next : judge(job, end).path) {
          EXPECT_TRUE(is_legal(at, next)) << state_name(at) << " " << state_name(next);
          at = next;
        }
        EXPECT_TRUE(at == pending || at == completed || is_final(at));
      }
    }
  }
}

TEST(StopDue, LimitsInTheOrderOfHurry) {
  Job job = running_job();
  const Spend none;
  EXPECT_EQ(stop_due(job, none, {}, none, kNoon), Stop::none);
  job.request.time_limit_ms = 600'000;
  job.elapsed_ms = 539'999;
  EXPECT_EQ(stop_due(job, none, {}, none, kNoon), Stop::none);
  job.elapsed_ms = 540'000;  // a minute before
  EXPECT_EQ(stop_due(job, none, {}, none, kNoon), Stop::time_limit);
  EXPECT_EQ((job.stop = Stop::time_limit, grace_ms(job, none, {}, none)), 60'000);
  job.request.time_limit_ms = 0;
  job.request.deadline_ms = kNoon;
  EXPECT_EQ(stop_due(job, none, {}, none, kNoon), Stop::deadline);
  job.request.deadline_ms = 0;
  Budget budget;
  budget.micro_usd = 5;
  Spend spent;
  spent.micro_usd = 5;
  EXPECT_EQ(stop_due(job, none, budget, spent, kNoon), Stop::budget);
  job.request.budget = budget;
  EXPECT_EQ(stop_due(job, spent, budget, spent, kNoon), Stop::job_budget);
  // For any reason to stop.
  for (const Stop stop : {Stop::budget, Stop::job_budget, Stop::cancel, Stop::preempt}) {
    job.stop = stop;
    EXPECT_LT(grace_ms(job, spent, budget, spent) + kChargeIntervalMs + 5'000, 60'000);
  }
  EXPECT_EQ(grace_ms(job, none, budget, none), kLongestGraceMs);
}

}  // namespace
}  // namespace tutti::control
