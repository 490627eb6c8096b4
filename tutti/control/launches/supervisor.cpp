#include "tutti/control/launches/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/energy_meter.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/orphans.h"
#include "tutti/base/signals.h"
#include "tutti/control/launches/health_watch.h"
#include "tutti/control/launches/launch_folder.h"
#include "tutti/control/schedule/policy.h"

namespace tutti::control {
namespace {

constexpr int kSignalExit = 128;  // and the number of the signal
constexpr double kLookSeconds = 0.05;
constexpr double kLockPatienceSeconds = 10;  // others look at the lock for an instant
constexpr double kMeterSeconds = 10;
constexpr double kAliveSeconds = 2;
constexpr double kOrphanSeconds = 10;  // srun ends its ranks and reaps the last of them
constexpr double kRoomSeconds = 1;     // between two attempts to write on a full disk

// The last error that a command of ours has printed after the first `before` bytes of its output.
std::string last_error(FileSystem& files, const std::string& output, int64_t before) {
  constexpr std::string_view kMark = "tutti: error: ";
  constexpr size_t kMost = 500;
  if (!files.exists(output)) return {};
  const std::string text = read_file(files, output);
  const size_t at = text.rfind(kMark);
  if (at == std::string::npos || at < static_cast<size_t>(before)) return {};
  const size_t begin = at + kMark.size();
  return text.substr(begin, std::min(kMost, text.find('\n', begin) - begin));
}

// A full disk must not end a training run.
void write_alive(LaunchFolder& folder, int64_t generation, int64_t elapsed_ms) {
  try {
    folder.write_alive(generation, elapsed_ms);
  } catch (const Error&) {
    // What it said last stands; the next time comes.
  }
}

// How a launch ended must not be lost: without it the work would be done again. Tried until it is
// written, the folder is gone, or this launch is to be killed. What is in the way is said in the
// job's output, once while it stays the same.
void write_ended(FileSystem& files, LaunchFolder& folder, int64_t generation, const Ended& ended) {
  std::string reported;
  while (true) {
    try {
      folder.write_ended(generation, ended);
      return;
    } catch (const Error& error) {
      if (!files.is_directory(folder.path()) || folder.is_asked_to_die(generation)) throw;
      if (reported != error.what()) {
        reported = error.what();
        const std::string text =
            fmt::format("tutti: warning: how it ended cannot be written down yet: {}\n", reported);
        std::fputs(text.c_str(), stderr);  // where there may be no room either
      }
      sleep_seconds(kRoomSeconds);
    }
  }
}

Ended run(LaunchFolder& folder, const LaunchOrder& order, const std::string& program,
          int64_t begin_ms) {
  Ended ended;
  if (!order.folder.empty() && ::chdir(order.folder.c_str()) != 0) {
    ended.detail = fmt::format("its folder '{}' cannot be entered", order.folder);
    return ended;
  }
  const int64_t cores = order.claims.front().cores;
  std::vector<std::string> words = {"tutti"};
  words.insert(words.end(), order.command.begin(), order.command.end());
  if (order.command.front() == "train") {
    words.insert(words.end(), {"--end-with-parent", std::to_string(::getpid())});
  }
  if (order.health) {
    words.insert(words.end(), {"--ready-file", folder.ready_path(order.key.generation)});
  }
  // Counters are those of the whole machine: they count where the job has all of it.
  FileSystem& files = posix_file_system();
  const int64_t printed =
      files.exists(folder.output_path()) ? files.size_bytes(folder.output_path()) : 0;
  EnergyMeter meter(files);
  const bool metered = cores >= describe_machine().cores && order.claims.size() == 1;
  // By which what the command reports is known to be of this launch.
  ::setenv("TUTTI_LAUNCH", launch_name(order.key).c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  try {
    ChildProcess child(program, words, folder.output_path());
    const int64_t generation = order.key.generation;
    std::unique_ptr<HealthWatch> health;
    if (order.health) {
      health = std::make_unique<HealthWatch>(files, folder, generation, *order.health);
    }
    std::string broken;             // by its health
    std::optional<double> kill_at;  // once it was asked to save and stop
    bool was_over = false;
    double next_alive = 0;
    double next_sample = monotonic_seconds() + kMeterSeconds;
    while (!child.exit_code()) {
      const bool over =
          order.stop_after_ms > 0 && steady_milliseconds() - begin_ms >= order.stop_after_ms;
      const bool asked = stop_signal() != 0 || folder.is_asked_to_stop(generation);
      const bool was_signaled = kill_at.has_value();
      const auto allow = [&](int64_t grace_ms) {
        const double until = monotonic_seconds() + static_cast<double>(grace_ms) / 1000;
        kill_at = std::min(kill_at.value_or(until), until);
      };
      if (asked && !was_signaled) allow(kLongestGraceMs);
      // The controller may be gone by then, and the limits of the launch are used up.
      if (over && !was_over) allow(order.grace_ms);
      was_over = over;
      if (kill_at && !was_signaled) {
        // A batch system may have sent SIGTERM to all of them itself; a second would be too many.
        child.send(order.command.front() == "train" ? SIGUSR2 : SIGTERM);
      }
      if (health && kill_at) {
        health->end();
      } else if (health) {
        broken = health->broken();
      }
      const bool is_late = kill_at && monotonic_seconds() >= *kill_at;
      if (is_late || !broken.empty() || folder.is_asked_to_die(generation))
        ::kill(-child.id(), SIGKILL);
      if (monotonic_seconds() >= next_alive) {
        write_alive(folder, generation, steady_milliseconds() - begin_ms);
        next_alive = monotonic_seconds() + kAliveSeconds;
      }
      if (monotonic_seconds() >= next_sample) {
        meter.sample();
        next_sample += kMeterSeconds;
      }
      sleep_seconds(kLookSeconds);
    }
    ended.exit_code = *child.exit_code();
    if (ended.exit_code != exit_ok && ended.exit_code != exit_requeue) {
      ended.detail = broken.empty() ? last_error(files, folder.output_path(), printed) : broken;
    }
  } catch (const Error& error) {
    ended.detail = error.what();
  }
  meter.sample();
  if (metered) ended.measured_micro_kwh = meter.micro_kwh();
  return ended;
}

}  // namespace

int supervise(
    FileSystem& files, const std::string& path, int64_t generation, const std::string& program,
    const std::function<void(const LaunchOrder&, std::optional<int> exit_code)>& clean_up) {
  LaunchFolder folder(files, path);
  const auto lock = take_lock(folder.lock_path(), kLockPatienceSeconds);
  if (lock == nullptr) return exit_ok;
  if (folder.newest() != generation || folder.read_begun(generation) ||
      folder.read_ended(generation) || folder.is_asked_to_stop(generation) ||
      folder.is_asked_to_die(generation)) {
    return exit_ok;
  }
  const LaunchOrder order = folder.read_order(generation);
  const int64_t begin_ms = steady_milliseconds();
  folder.write_begun(generation, {::getpid(), boot_id(), begin_ms});
  adopt_orphans();
  Ended ended = run(folder, order, program, begin_ms);
  // One that was killed could not end what it had started: its ranks, or srun, which has them.
  if (!ended.exit_code || *ended.exit_code > kSignalExit) end_orphans(kOrphanSeconds);
  if (clean_up) clean_up(order, ended.exit_code);
  ended.elapsed_ms = steady_milliseconds() - begin_ms;
  write_ended(files, folder, generation, ended);
  return ended.exit_code.value_or(exit_failed);
}

}  // namespace tutti::control
