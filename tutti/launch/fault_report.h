// What happened to a run and what was done about it: a file per fault in RUN/faults, as JSON.
//
//   {"time":"2026-01-31T12:00:00Z","wall_seconds":..., "launch":"3-1769860800000-2","generation":1,
//    "rank":3,"node":"n4","step":120,"cause":"rank 3 was lost with its node n4","action":"...",
//    "ranks_before":4,"ranks_after":3,"lost_steps":7,"lost_seconds":3.2}
//
// lost_seconds: of all ranks, from the newest durable checkpoint (or the start) to the failure.
// `launch` is $TUTTI_LAUNCH, by which the faults are charged to their launch; absent without.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/file.h"

namespace tutti::launch {

struct FaultReport {
  uint64_t generation = 1;
  int64_t rank = 0;
  std::string node;
  int64_t step = 0;
  std::string cause;
  std::string action;
  int64_t ranks_before = 0;
  int64_t ranks_after = 0;  // 0: none, given up
  int64_t lost_steps = 0;
  double lost_seconds = 0;
};

// Never throws: a report that cannot be written is logged and does not stop the run.
void write_fault(FileSystem& files, const std::string& run_folder, const FaultReport& report);

}  // namespace tutti::launch
