// Supervisors that run a shell instead of the program, and what a launcher sees of them.

#include "tutti/control/launches/supervisor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/control/launches/launch_folder.h"
#include "tutti/control/launches/local_launcher.h"

namespace tutti::control {
namespace {

namespace fs = std::filesystem;

class Supervisor : public testing::Test {
 protected:
  Supervisor() { fs::create_directories(jobs_); }
  ~Supervisor() override { fs::remove_all(jobs_); }

  LaunchOrder order(int64_t generation, const std::string& script) const {
    LaunchOrder order;
    order.key = {7, 100, generation};
    order.command = {"-c", script};
    order.claims = {{7, generation, "n1", 1, 0}};
    return order;
  }
  // As LocalLauncher::start does, without the process.
  void prepare(const LaunchOrder& order) {
    fs::create_directories(folder_.path());
    folder_.write_order(order);
    folder_.set_newest(order.key.generation);
  }
  void run(int64_t generation) {
    supervise(posix_file_system(), folder_.path(), generation, "/bin/sh");
  }
  // Until the shell of the launch has set its trap and says so.
  void await_ready(int64_t generation) {
    while (status(generation).phase != LaunchPhase::running) sleep_seconds(0.01);
    while (!fs::exists(folder_.output_path()) || output() != "ready\n") sleep_seconds(0.01);
  }
  std::string output() const { return read_file(posix_file_system(), folder_.output_path()); }
  LaunchStatus status(int64_t generation) { return launcher_.status({7, 100, generation}); }

  const fs::path jobs_ =
      fs::path(testing::TempDir()) / ("tutti_control_supervisor_" + std::to_string(::getpid()));
  LaunchFolder folder_{posix_file_system(), job_folder(jobs_.string(), 7, 100)};
  LocalLauncher launcher_{posix_file_system(), jobs_.string(), {"/bin/true", "true"}};
};

TEST_F(Supervisor, WritesDownHowItEnded) {
  EXPECT_EQ(status(1).phase, LaunchPhase::unknown);
  prepare(order(1, "echo hello; exit 3"));
  run(1);
  EXPECT_EQ(output(), "hello\n");
  const LaunchStatus ended = status(1);
  EXPECT_EQ(ended.phase, LaunchPhase::ended);
  EXPECT_EQ(ended.exit_code, 3);
  run(1);  // a second supervisor of the same launch does nothing
  EXPECT_EQ(output(), "hello\n");
}

TEST_F(Supervisor, KillsADeploymentThatIsNotHealthyInTime) {
  LaunchOrder deployed = order(1, "echo \"$0 $1\"; sleep 60");
  deployed.health = HealthRule{300, 100, 2};
  prepare(deployed);
  run(1);
  EXPECT_EQ(output(), "--ready-file " + folder_.ready_path(1) + "\n");
  EXPECT_EQ(status(1).exit_code, 137);
  EXPECT_NE(status(1).detail.find("it does not listen yet"), std::string::npos) << status(1).detail;
  EXPECT_EQ(folder_.read_health(1)->state, "unhealthy");
}

TEST_F(Supervisor, CleansUpBeforeReportingTheEnd) {
  prepare(order(1, "exit 3"));
  int cleaned = 0;
  const auto clean_up = [&](const LaunchOrder& of, std::optional<int> exit_code) {
    ++cleaned;
    EXPECT_EQ(of.command.back(), "exit 3");
    EXPECT_EQ(exit_code, 3);
    EXPECT_FALSE(folder_.read_ended(1));
  };
  supervise(posix_file_system(), folder_.path(), 1, "/bin/sh", clean_up);
  EXPECT_TRUE(folder_.read_ended(1).has_value());
  supervise(posix_file_system(), folder_.path(), 1, "/bin/sh", clean_up);  // does nothing
  EXPECT_EQ(cleaned, 1);
}

TEST_F(Supervisor, OlderGenerationsDoNotBegin) {
  prepare(order(1, "echo one"));
  prepare(order(2, "echo two"));
  run(1);
  EXPECT_FALSE(folder_.read_begun(1));
  EXPECT_EQ(status(1).phase, LaunchPhase::superseded);
  EXPECT_EQ(status(1).newer_generation, 2);
  run(2);
  EXPECT_EQ(output(), "two\n");
}

TEST_F(Supervisor, ASupervisorAskedToStopDoesNotStart) {
  prepare(order(1, "echo one"));
  launcher_.kill({7, 100, 1});
  run(1);
  EXPECT_EQ(status(1).phase, LaunchPhase::unknown);
  prepare(order(2, "echo two"));
  launcher_.stop({7, 100, 2});
  run(2);
  EXPECT_FALSE(fs::exists(folder_.output_path()));
}

TEST_F(Supervisor, PassesOnTheRequestToStopOnce) {
  prepare(
      order(1, "trap 'echo stopped; exit 75' TERM; echo ready; while true; do sleep 0.02; done"));
  std::thread supervisor([&] { run(1); });
  await_ready(1);
  EXPECT_GE(status(1).elapsed_ms, 0);
  sleep_seconds(0.2);
  launcher_.stop({7, 100, 1});
  launcher_.stop({7, 100, 1});
  supervisor.join();
  EXPECT_EQ(output(), "ready\nstopped\n");
  EXPECT_EQ(status(1).exit_code, 75);
  EXPECT_GE(status(1).elapsed_ms, 200);
}

TEST_F(Supervisor, KillsWhoDoesNotListen) {
  prepare(order(1, "trap '' TERM; echo ready; while true; do sleep 0.02; done"));
  std::thread supervisor([&] { run(1); });
  await_ready(1);
  launcher_.stop({7, 100, 1});
  launcher_.kill({7, 100, 1});
  supervisor.join();
  EXPECT_EQ(status(1).exit_code, 137);
}

TEST_F(Supervisor, EndsAJobAtItsTimeLimit) {
  LaunchOrder limited = order(1, "exec sleep 60");
  limited.stop_after_ms = 300;
  limited.grace_ms = 30'000;
  prepare(limited);
  run(1);
  EXPECT_EQ(status(1).exit_code, 143);
  EXPECT_LT(status(1).elapsed_ms, 30'000);
}

TEST_F(Supervisor, KillsUnresponsiveJobsAtTheirTimeLimit) {
  constexpr int kNoTrapYet = 128 + SIGTERM;  // of a shell that came late, on a busy machine
  LaunchStatus ended;
  ended.exit_code = kNoTrapYet;
  int64_t generation = 0;
  int64_t patience_ms = 500;
  for (; ended.exit_code == kNoTrapYet && patience_ms < 60'000; patience_ms *= 3) {
    LaunchOrder limited = order(++generation, "trap '' TERM; while true; do sleep 0.02; done");
    limited.stop_after_ms = patience_ms;
    limited.grace_ms = 200;
    prepare(limited);
    run(generation);
    ended = status(generation);
    EXPECT_GE(ended.elapsed_ms, patience_ms + (ended.exit_code == kNoTrapYet ? 0 : 200));
  }
  EXPECT_EQ(ended.exit_code, 137);
}

// The controller may have died after asking it to stop: then nothing else would kill it in time.
TEST_F(Supervisor, StopRequestsDoNotExtendTheTimeLimit) {
  LaunchOrder limited = order(1, "trap '' TERM; echo ready; while true; do sleep 0.02; done");
  limited.stop_after_ms = 1000;
  limited.grace_ms = 200;
  prepare(limited);
  std::thread supervisor([&] { run(1); });
  while (status(1).phase != LaunchPhase::running) sleep_seconds(0.01);
  sleep_seconds(0.3);
  launcher_.stop({7, 100, 1});
  supervisor.join();
  EXPECT_NE(status(1).exit_code, 0);
  EXPECT_LT(status(1).elapsed_ms, 60'000);
}

TEST_F(Supervisor, ALaunchThatVanishedIsLost) {
  prepare(order(1, "true"));
  folder_.write_begun(1, {1, boot_id(), steady_milliseconds()});
  EXPECT_EQ(status(1).phase, LaunchPhase::lost);
  const ProcessLock lock(folder_.lock_path());
  EXPECT_EQ(status(1).phase, LaunchPhase::running);
  // The same after a reboot, even if another process holds the lock now.
  folder_.write_begun(1, {1, "another boot", 0});
  EXPECT_EQ(status(1).phase, LaunchPhase::lost);
}

TEST_F(Supervisor, OneThatCannotBeginSaysSo) {
  launcher_.start(order(1, "true"));  // its supervisor is /bin/true
  for (int i = 0; i < 500 && status(1).phase == LaunchPhase::starting; ++i) sleep_seconds(0.01);
  // Reported once: a second request may restart it.
  LocalLauncher missing(posix_file_system(), jobs_.string(), {"/no/such/program", "x"});
  EXPECT_THROW(missing.start(order(2, "true")), Error);
}

TEST_F(Supervisor, ReportsOnceWhyTheEndCannotBeRecorded) {
  const fs::path in_the_way = fs::path(folder_.path()) / "ended-1";
  prepare(order(1, "mkdir " + in_the_way.string()));
  testing::internal::CaptureStderr();
  std::thread helper([&] {
    while (!fs::exists(in_the_way)) sleep_seconds(0.01);
    sleep_seconds(2.5);  // it has tried more than once
    fs::remove(in_the_way);
  });
  run(1);
  helper.join();
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string text = "cannot be written down yet";
  EXPECT_NE(said.find(text), std::string::npos) << said;
  EXPECT_EQ(said.find(text), said.rfind(text)) << said;
  EXPECT_EQ(status(1).phase, LaunchPhase::ended);
}

}  // namespace
}  // namespace tutti::control
