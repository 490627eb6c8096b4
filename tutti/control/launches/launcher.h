// How the controller starts and stops launches. Every call may be repeated at any time, also after
// a crash of the controller, and takes effect once (idempotent).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/jobs/job.h"

namespace tutti::control {

// Which launch of which job. The stamp distinguishes jobs that had the same number in two lives of
// a database (before and after a backup was restored).
struct LaunchKey {
  int64_t job = 0;
  int64_t stamp = 0;  // Job::submitted_ms
  int64_t generation = 0;
};

std::string launch_name(const LaunchKey& key);  // "JOB-STAMP-GENERATION"

struct LaunchOrder {
  LaunchKey key;
  std::vector<std::string> command;  // words after `tutti`
  std::string folder;                // working directory
  std::vector<Claim> claims;
  std::vector<std::string> avoid;  // nodes that failed this job lately
  int64_t stop_after_ms = 0;       // asked to save and stop after so long even without a controller
  int64_t grace_ms = 0;            // and killed so long after that
  std::optional<HealthRule> health;  // of a deployment
};

enum class LaunchPhase {
  unknown,   // never started, as far as can be seen
  starting,  // under way
  running,
  ended,       // with an exit code
  lost,        // it was running and nothing is left of it
  failed,      // it could not be started
  superseded,  // a launch of a newer generation was started: `newer_generation`
};

struct LaunchStatus {
  LaunchPhase phase = LaunchPhase::unknown;
  int64_t elapsed_ms = 0;  // since it began, on a clock that never jumps; 0 where not known
  std::optional<int> exit_code;
  std::optional<int64_t> measured_micro_kwh;
  int64_t newer_generation = 0;
  std::string detail;
  std::vector<std::string> nodes;  // that it really has, where a system outside chose them
  Stop stopped_by = Stop::none;    // by that system, and why
  bool suspended = false;          // it runs, and that system has stopped it for now
  bool out_of_memory = false;      // that system took its memory
};

// What a launch reports about itself: something failed, and it continued or gave up.
struct Fault {
  std::string name;  // unique
  int64_t time_ms = 0;
  std::string node;
  int64_t rank = 0;
  std::string cause;
  std::string action;
  int64_t lost_steps = 0;
  int64_t lost_ms = 0;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual void start(const LaunchOrder& order) = 0;
  virtual LaunchStatus status(const LaunchKey& key) = 0;
  virtual void stop(const LaunchKey& key) = 0;  // save and stop
  virtual void kill(const LaunchKey& key) = 0;
  // All so far, in order.
  virtual std::vector<Fault> faults(const LaunchKey& key, const std::string& run_folder) {
    (void)key;
    (void)run_folder;
    return {};
  }
};

}  // namespace tutti::control
