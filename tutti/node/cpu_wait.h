// How long this process's threads were runnable but did not run: because of other programs or a
// quota. Distinguishes a busy machine from a slow one.
#pragma once

#include <string>

namespace tutti::node {

// A process that lost less is taken for undisturbed.
inline constexpr double kMostCpuLost = 0.02;

struct CpuUse {
  double wall_seconds = 0;
  double ran_seconds = 0;     // of all threads
  double waited_seconds = 0;  // likewise; 0 where the system does not report it
  double stolen_seconds = 0;  // of all cores, by the host of a virtual machine
};

// Until now; `root` holds proc/. Threads that have ended do not count any more.
CpuUse read_cpu_use(const std::string& root = "");

// Of the processor time that threads asked for between two reads, the share that they did not get;
// 0 where they asked for next to nothing.
double lost_share(const CpuUse& before, const CpuUse& after);

}  // namespace tutti::node
