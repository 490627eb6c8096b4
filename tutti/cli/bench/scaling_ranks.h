// Steps of a recipe on some number of ranks of this machine, each a process of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/tasks/scaling_bench.h"

namespace tutti::cli {

struct ScalingRun {
  std::string recipe;  // file, or name of a recipe
  std::vector<std::string> overrides;
  int64_t steps = 5;
  std::string transport = "local";  // or gloo
  bool record = false;              // ScalingBench::trace
};

// The recipe with its mesh fitted to `ranks`; one rank has none of the recipe's axes.
spec::Recipe recipe_of_ranks(const ScalingRun& run, int64_t ranks);

// `ranks` processes with `threads` threads each; a single rank on the processor is this process,
// which itself takes no device into use. Throws unsupported where memory does not suffice, and peer
// where a rank ends before it is done.
train::ScalingBench measure_ranks(const ScalingRun& run, int64_t ranks, int threads);

// This process is a rank of those. Rank 0 writes the result to the file `result` for measure_ranks
// in the parent; empty: it does not.
train::ScalingBench measure_as_rank(const ScalingRun& run,
                                    const comm::LaunchEnvironment& environment,
                                    const std::string& result);

}  // namespace tutti::cli
