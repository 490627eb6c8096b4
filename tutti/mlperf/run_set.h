// A set of runs of one recipe, fixed before the first of them starts: how many, with which seeds,
// in which order, by which program. It is a file, so that an interrupted set resumes, and so that
// runs cannot be cherry-picked: every started run stays recorded.
//
// Rules behind it (mlcommons/training_policies, training_rules.adoc): runs are taken in order; a
// run that misses the target or fails counts as such, one of them may be the dropped slowest; the
// time of a run has no pause. So a run that was interrupted is done again from its beginning, with
// the same seed, and the part that was done is kept as an attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::mlperf {

enum class RunProgress { planned, running, done, failed };

struct SetRun {
  uint64_t seed = 0;
  RunProgress progress = RunProgress::planned;
  int exit_code = 0;    // of a run that is done or failed
  std::string started;  // UTC
  std::string ended;
  std::optional<double> minutes;  // run_start to run_stop
  bool reached_target = false;
  std::string reason;  // of a failure
};

// The part of a run that was interrupted.
struct Attempt {
  int64_t run = 0;  // index in `runs`
  std::string folder;
  std::string started;
  std::string reason;
};

struct RunSet {
  std::string recipe_yaml;      // resolved, with the seed of the first run
  std::string executable_hash;  // of the program that runs all of them
  std::string version;
  std::vector<SetRun> runs;  // in the order in which they are done
  std::vector<Attempt> attempts;

  int64_t ended() const;   // done or failed
  int64_t missed() const;  // ended without the target; with two of them there is no score
};

// Seeds seed_base, seed_base + 1, ...
RunSet plan_runs(const std::string& recipe_yaml, int64_t runs, uint64_t seed_base);

// The set of `path`; nothing when there is none. Throws corrupt.
std::optional<RunSet> load_run_set(FileSystem& files, const std::string& path);
void save_run_set(FileSystem& files, const std::string& path, const RunSet& set);

// Throws usage naming what differs when `stored`, of `path`, cannot continue as `wanted`: the
// recipe's keys (not the seed), the seeds, the program.
void check_same_set(const RunSet& stored, const RunSet& wanted, const std::string& path);

// What the log of a run says: its minutes, and whether it reached the target.
struct LogOutcome {
  std::optional<double> minutes;
  bool reached_target = false;
  std::string benchmark;
};
LogOutcome read_outcome(FileSystem& files, const std::string& log);

Json to_json(const RunSet& set);

}  // namespace tutti::mlperf
