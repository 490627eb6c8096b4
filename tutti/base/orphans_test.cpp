#include "tutti/base/orphans.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"

namespace tutti {
namespace {

// How many were left by a shell that ran `script`.
int left_by(const std::string& script, double patience_seconds) {
  ChildProcess shell("/bin/sh", {"sh", "-c", script}, "/dev/null");
  while (!shell.exit_code()) sleep_seconds(0.01);
  return end_orphans(patience_seconds);
}

TEST(Orphans, OfAShellThatWasKilledEnd) {
  adopt_orphans();
  const double begin = monotonic_seconds();
  EXPECT_EQ(left_by("exit 0", 60), 0);
  EXPECT_EQ(left_by("sleep 60 & setsid sleep 60 & kill -KILL $$", 60), 2);
  EXPECT_LT(monotonic_seconds() - begin, 30);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Orphans, OneThatDoesNotListenIsEnded) {
  adopt_orphans();
  EXPECT_EQ(left_by("(trap '' TERM; exec sleep 60) & sleep 0.2; kill -KILL $$", 0.3), 1);
}

}  // namespace
}  // namespace tutti
