// Executes a set of runs (mlperf/run_set.h): each run is a child process of this program.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/mlperf/run_set.h"

namespace tutti::cli {

// Where everything of a set lies.
struct SetPaths {
  std::string out;

  std::string set() const { return join_path(out, "runs.json"); }
  std::string recipe() const { return join_path(out, "recipe.yaml"); }  // that the runs take
  std::string submission() const { return join_path(out, "submission"); }
  std::string run(size_t index) const;
  std::string log(size_t index) const;
  std::string output(size_t index) const { return run(index) + ".txt"; }  // what the run printed
};

// Runs what is missing of `set`, one run after the other, shows how far they are, and stores the
// set after every change. The first signal to stop is passed on to the run; that run is put aside
// and its index is scheduled again. False when asked to stop; what is done is saved. Ends early
// when there can be no score any more (two runs without the target). Throws usage with the last
// words of a run that could not start. The caller holds the set's ProcessLock and watches signals.
bool execute_set(FileSystem& files, const SetPaths& paths, mlperf::RunSet& set, int64_t steps);

}  // namespace tutti::cli
