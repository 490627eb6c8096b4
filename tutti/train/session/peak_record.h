// RUN/peaks.json: the best rate that the machines of a run have shown, so that a session which
// starts while they are busy does not count its MFU against less.
//
//   {"format": "tutti-peaks", "peaks": {"f32 on n1 (CPU), 4 threads": 1.2e11}, "xxh3": "..."}
#pragma once

#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"

namespace tutti::train {

// What computes: ranks that share a machine share one.
struct PeakMachine {
  std::string name;  // "n1 (AMD EPYC 9654)"
  int64_t threads = 0;

  bool operator==(const PeakMachine&) const = default;
};

// One key for all ranks' machines and their threads, in any order.
std::string peak_key(DType compute, const std::vector<PeakMachine>& ranks);

// The better of the recorded rate and `flops_per_second`, which is recorded if it is that. A
// damaged record is restarted; one that cannot be written is left unchanged.
double best_peak(FileSystem& files, const std::string& run_folder, const std::string& key,
                 double flops_per_second);

}  // namespace tutti::train
