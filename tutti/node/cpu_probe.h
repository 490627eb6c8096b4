// The share of its cores that a node delivers, and their clock.
//
// A thread bound to each core computes without pause, in windows of 0.1 s. In each window is known
// how long it ran (its processor time). What it did not get was
//
//   withheld  by a quota or by being stopped: what the control group counted, or, where that cannot
//             be read, the time for which the cores stood idle although there was work for each
//   stolen    by the host of a virtual machine: as the system counts it, and hidden from it where
//             an iteration took long though the system says that it ran all the time
//   others    by other programs: the rest
//
// Interference comes and goes, a slow node is slow all the time: of the others' share the lower
// quartile of the windows counts, and a measurement that others disturb is repeated. So
//
//   available = 1 - max(withheld + stolen, lower quartile of what windows did not get) - hidden
//
// The clock is that of a chain of dependent operations of one cycle each: per window the fastest
// of many short iterations, of these the median.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::node {

struct CpuWindow {
  double wall_seconds = 0;
  double cpu_seconds = 0;        // of that, the thread ran
  double hidden_seconds = 0;     // in which it ran for the system, but did nothing
  double iteration_seconds = 0;  // fastest
};

// What was seen, of all cores during the same time.
struct CpuSample {
  std::vector<std::vector<CpuWindow>> cores;  // [core][window], equally many of each
  double throttled_seconds = -1;              // all cores together; -1: not known
  double idle_seconds = 0;                    // likewise, as the system counts
  double stolen_seconds = 0;
};

struct CpuShare {
  double available = 1;  // share of the cores' time
  double withheld = 0;
  double stolen = 0;     // also what was hidden
  double others = 0;     // sustained: the lower quartile
  double disturbed = 0;  // by others, on average
  double clock_hz = 0;   // median of the cores
  double slowest = 1;    // slowest core's clock over the fastest's
  int slowest_core = 0;
};

CpuShare judge_cpu(const CpuSample& sample, const std::vector<int>& cores);

// One measurement of `seconds` on these cores (as hwloc numbers hardware threads).
CpuSample sample_cpu(const std::vector<int>& cores, double seconds);

}  // namespace tutti::node
