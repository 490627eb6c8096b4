#include "tutti/control/jobs/job_state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

JobState state(int i) { return static_cast<JobState>(i); }

TEST(JobState, NamesAreReadBack) {
  for (int i = 0; i < kJobStates; ++i) EXPECT_EQ(parse_state(state_name(state(i))), state(i));
  for (int i = 0; i <= static_cast<int>(Reason::fenced); ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_EQ(parse_reason(reason_name(reason)), reason);
  }
  EXPECT_TRUE(throws(
      ErrorKind::usage, [] { parse_state("LOST"); }, "NODE_FAIL"));
}

TEST(JobState, EveryStateCanBeReachedAndLeftExceptTheLast) {
  std::set<JobState> reached = {JobState::pending};
  for (bool grown = true; grown;) {
    grown = false;
    for (const JobState from : std::set<JobState>(reached)) {
      for (int to = 0; to < kJobStates; ++to) {
        if (is_legal(from, state(to))) grown = reached.insert(state(to)).second || grown;
      }
    }
  }
  EXPECT_EQ(reached.size(), static_cast<size_t>(kJobStates));
  for (int from = 0; from < kJobStates; ++from) {
    int followers = 0;
    for (int to = 0; to < kJobStates; ++to) followers += is_legal(state(from), state(to)) ? 1 : 0;
    EXPECT_EQ(followers == 0, state(from) == JobState::completed) << state_name(state(from));
    EXPECT_FALSE(is_legal(state(from), state(from)));
  }
}

// A job gets nodes only by CONFIGURING, and leaves a final state only by REQUEUED and PENDING.
TEST(JobState, NodesAreOwnedByConfigurationOnly) {
  for (int from = 0; from < kJobStates; ++from) {
    for (int to = 0; to < kJobStates; ++to) {
      if (!is_legal(state(from), state(to))) continue;
      if (owns_nodes(state(to)) && !owns_nodes(state(from))) {
        EXPECT_EQ(state(from), JobState::pending);
        EXPECT_EQ(state(to), JobState::configuring);
      }
      if (is_final(state(from))) {
        EXPECT_EQ(state(to), JobState::requeued);
      }
      if (state(to) == JobState::pending) {
        EXPECT_EQ(state(from), JobState::requeued);
      }
    }
    EXPECT_FALSE(is_final(state(from)) && owns_nodes(state(from)));
  }
}

}  // namespace
}  // namespace tutti::control
