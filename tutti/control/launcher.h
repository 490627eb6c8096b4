// How the controller starts and ends what jobs run: the one way out of its records. Every call may
// be repeated after a crash of the controller, at any moment, and has its effect once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/control/job.h"

namespace tutti::control {

// Which launch of which job. The stamp tells jobs apart that had the same number in two lives of a
// database (before and after a backup was restored).
struct LaunchKey {
  int64_t job = 0;
  int64_t stamp = 0;  // Job::submitted_ms
  int64_t generation = 0;
};

struct LaunchOrder {
  LaunchKey key;
  std::vector<std::string> command;  // words after `tutti`
  std::string folder;                // working directory
  std::vector<Claim> claims;
  int64_t stop_after_ms = 0;  // told to save and stop after so long even without a controller
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
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual void start(const LaunchOrder& order) = 0;
  virtual LaunchStatus status(const LaunchKey& key) = 0;
  virtual void stop(const LaunchKey& key) = 0;  // save and stop
  virtual void kill(const LaunchKey& key) = 0;
};

}  // namespace tutti::control
