#include "tutti/base/child_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"

namespace tutti {
namespace {

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildProcessTest() { posix_file_system().create_directories(folder_); }
  ~ChildProcessTest() override { posix_file_system().remove_tree(folder_); }

  static int wait(ChildProcess& child) {
    for (int i = 0; i < 5000; ++i) {
      if (const auto code = child.exit_code()) return *code;
      sleep_seconds(0.01);
    }
    return -1;
  }
  std::vector<std::string> shell(const std::string& command) { return {"sh", "-c", command}; }

  const std::string folder_ =
      ::testing::TempDir() + "child-process-test-" + std::to_string(::getpid());
  const std::string output_ = folder_ + "/output";
};

TEST_F(ChildProcessTest, GivesItsExitCodeAndItsOutput) {
  ChildProcess first("/bin/sh", shell("echo out; echo err >&2; exit 7"), output_);
  EXPECT_EQ(wait(first), 7);
  ChildProcess second("/bin/sh", shell("wc -c"), output_);  // standard input is empty
  EXPECT_EQ(wait(second), 0);
  EXPECT_EQ(read_file(posix_file_system(), output_), "out\nerr\n0\n");
}

TEST_F(ChildProcessTest, ASignalIsACodeAbove128) {
  ChildProcess child("/bin/sh", shell("exec sleep 60"), output_);
  EXPECT_FALSE(child.exit_code().has_value());
  child.send(SIGTERM);
  EXPECT_EQ(wait(child), 128 + SIGTERM);
}

TEST_F(ChildProcessTest, BlockedSignalsReachTheChild) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  ChildProcess child("/bin/sh", shell("exec sleep 60"), output_);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  child.send(SIGINT);
  EXPECT_EQ(wait(child), 128 + SIGINT);
}

TEST_F(ChildProcessTest, LeavesNoProcessBehind) {
  int id = 0;
  {
    ChildProcess child("/bin/sh", shell("sleep 60 & sleep 60"), output_);
    id = child.id();
  }
  EXPECT_EQ(::kill(id, 0), -1);
}

TEST_F(ChildProcessTest, SaysWhatCannotBeStarted) {
  EXPECT_THROW(ChildProcess("/no/such/program", {"x"}, output_), Error);
}

TEST_F(ChildProcessTest, ALockLastsAsLongAsTheChildrenStartedUnderIt) {
  const std::string path = folder_ + "/lock";
  auto lock = std::make_unique<ProcessLock>(path);
  EXPECT_TRUE(lock->held());
  EXPECT_FALSE(ProcessLock(path).held());
  ChildProcess child("/bin/sh", shell("exec sleep 60"), output_);
  lock.reset();
  EXPECT_FALSE(ProcessLock(path).held());
  child.send(SIGKILL);
  wait(child);
  EXPECT_TRUE(ProcessLock(path).held());
}

TEST_F(ChildProcessTest, ALockIsWaitedForWithPatience) {
  const std::string path = folder_ + "/lock";
  auto lock = std::make_unique<ProcessLock>(path);
  EXPECT_EQ(take_lock(path, 0.1), nullptr);
  std::thread releases([&] {
    sleep_seconds(0.2);
    lock.reset();
  });
  EXPECT_NE(take_lock(path, 60), nullptr);
  releases.join();
}

}  // namespace
}  // namespace tutti
