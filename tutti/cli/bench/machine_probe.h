// Short measurements of what a calibrated run's own trace cannot show (plan/calibrate.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/plan/calibrate.h"

namespace tutti::cli {

// Steps of the run's model, cut to a few layers, on `ranks` ranks that share `threads` threads and
// the run's micro-batch as equally as it divides, in `precision`. Operations are as long as those
// of the whole model. Throws unsupported where memory does not suffice.
plan::RankRecording probe_machine(const std::string& run, const spec::Recipe& recipe, int64_t ranks,
                                  int64_t threads, spec::Precision precision);

// Numbers of ranks, more than one, that divide the threads, as far as they are measured.
std::vector<int64_t> probed_ranks(int64_t threads);

}  // namespace tutti::cli
