#include "tutti/node/cpu_wait.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tutti/base/clock.h"

namespace tutti::node {

CpuUse read_cpu_use(const std::string& root) {
  CpuUse use;
  use.wall_seconds = monotonic_seconds();
  std::error_code error;
  // "RAN WAITED SLICES", in nanoseconds.
  for (std::filesystem::directory_iterator thread(root + "/proc/self/task", error), end;
       !error && thread != end; thread.increment(error)) {
    std::ifstream in(thread->path() / "schedstat");
    double ran = 0;
    double waited = 0;
    if (!(in >> ran >> waited)) continue;
    use.ran_seconds += ran * 1e-9;
    use.waited_seconds += waited * 1e-9;
  }
  // "cpu user nice system idle iowait irq softirq steal ...", in ticks.
  std::ifstream in(root + "/proc/stat");
  std::string name;
  in >> name;
  double value = 0;
  constexpr int kStealColumn = 7;
  for (int column = 0; column <= kStealColumn && in >> value; ++column) {
    if (column != kStealColumn) continue;
    use.stolen_seconds = value / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return use;
}

double lost_share(const CpuUse& before, const CpuUse& after) {
  const double wall = after.wall_seconds - before.wall_seconds;
  const double ran = std::max(0.0, after.ran_seconds - before.ran_seconds);
  const double waited = std::max(0.0, after.waited_seconds - before.waited_seconds) +
                        std::max(0.0, after.stolen_seconds - before.stolen_seconds);
  // A thread that hardly ran may have waited as long without having lost anything.
  if (wall <= 0 || waited < kMostCpuLost * wall) return 0;
  return waited / (ran + waited);
}

}  // namespace tutti::node
