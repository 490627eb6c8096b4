#include "tutti/base/command.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti {
namespace {

TEST(Command, ReturnsOutputsAndExitCode) {
  const CommandResult said = run_command({"sh", "-c", "echo out; echo err >&2; exit 7"}, 10);
  EXPECT_EQ(said.output, "out\n");
  EXPECT_EQ(said.error, "err\n");
  EXPECT_EQ(said.exit_code, 7);
  EXPECT_TRUE(said.in_time);
  EXPECT_FALSE(said.ok());
}

TEST(Command, LongOutputIsWhole) {
  EXPECT_EQ(run_command({"sh", "-c", "head -c 1000000 /dev/zero"}, 10).output.size(), 1000000U);
}

TEST(Command, OneThatTakesTooLongIsKilled) {
  const double begin = monotonic_seconds();
  CommandResult said;
  // A shell on a busy machine may need longer to say its word.
  for (double patience = 0.2; said.output.empty() && patience < 30; patience *= 2) {
    said = run_command({"sh", "-c", "echo first; sleep 600"}, patience);
    EXPECT_FALSE(said.in_time);
  }
  EXPECT_EQ(said.output, "first\n");
  EXPECT_LT(monotonic_seconds() - begin, 300);
}

TEST(Command, DoesNotWaitForOrphans) {
  const double begin = monotonic_seconds();
  EXPECT_TRUE(run_command({"sh", "-c", "sleep 60 & echo done"}, 50).ok());
  EXPECT_LT(monotonic_seconds() - begin, 40);
}

TEST(Command, ReapsItWhereChildrenWereIgnored) {
  std::signal(SIGCHLD, SIG_IGN);  // as inherited from some launchers
  const CommandResult said = run_command({"sh", "-c", "exit 3"}, 10);
  EXPECT_TRUE(said.in_time);
  EXPECT_EQ(said.exit_code, 3);
}

TEST(Command, OneThatIsNotThereSaysSo) {
  EXPECT_THROW(run_command({"no-such-program-of-tutti"}, 1), Error);
}

}  // namespace
}  // namespace tutti
