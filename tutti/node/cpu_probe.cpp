#include "tutti/node/cpu_probe.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <exception>
#include <fstream>
#include <latch>
#include <sstream>
#include <string>
#include <thread>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/quantile.h"
#include "tutti/node/cgroup_cpu.h"

namespace tutti::node {
namespace {

constexpr double kWindowSeconds = 0.1;
constexpr int kSteps = 20000;            // of a chain, about 30 microseconds
constexpr int kCyclesPerStep = 6;        // three shifts and three exclusive-ors
constexpr double kHiddenSeconds = 1e-3;  // no interrupt takes that long

double thread_seconds() {
  timespec time{};
  TUTTI_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0, "no clock of this thread");
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Marsaglia's xorshift: every operation needs the one before.
uint64_t chain(uint64_t x) {
  for (int i = 0; i < kSteps; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  return x;
}

void bind_thread(int core) {
  cpu_set_t* set = CPU_ALLOC(core + 1);
  const size_t bytes = CPU_ALLOC_SIZE(core + 1);
  TUTTI_CHECK(set != nullptr, "no memory for a set of cores");
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(core, bytes, set);
  const int failed = sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
  if (failed != 0) fail(ErrorKind::unsupported, "a thread cannot be bound to core {}", core);
}

// From `begin` on.
std::vector<CpuWindow> run_core(double begin, int windows, uint64_t& sink) {
  while (monotonic_seconds() < begin) {
  }
  std::vector<CpuWindow> out;
  uint64_t x = sink;
  double wall = monotonic_seconds();
  double cpu = thread_seconds();
  for (int window = 1; window <= windows; ++window) {
    const double end = begin + window * kWindowSeconds;
    CpuWindow now;
    now.iteration_seconds = 1e9;
    const double first_wall = wall;
    const double first_cpu = cpu;
    // At least one iteration, also where the thread was stopped for longer than a window.
    do {
      x = chain(x);
      const double next_wall = monotonic_seconds();
      const double next_cpu = thread_seconds();
      const double took = next_wall - wall;
      now.iteration_seconds = std::min(now.iteration_seconds, took);
      if (took > kHiddenSeconds && next_cpu - cpu > took / 2) {
        now.hidden_seconds += next_cpu - cpu;
      }
      wall = next_wall;
      cpu = next_cpu;
    } while (wall < end);
    now.wall_seconds = wall - first_wall;
    now.cpu_seconds = cpu - first_cpu;
    out.push_back(now);
  }
  sink = x;
  return out;
}

struct SystemTime {
  double idle_seconds = 0;
  double stolen_seconds = 0;
};

// Of these cores, from /proc/stat: "cpu3 user nice system idle iowait irq softirq steal ...".
SystemTime system_time(const std::vector<int>& cores) {
  static const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  SystemTime out;
  std::ifstream in("/proc/stat");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name.size() < 4 || name.compare(0, 3, "cpu") != 0) continue;
    if (std::find(cores.begin(), cores.end(), std::atoi(name.c_str() + 3)) == cores.end()) continue;
    double value = 0;
    for (int column = 0; column < 8 && words >> value; ++column) {
      if (column == 3 || column == 4) out.idle_seconds += value / ticks;
      if (column == 7) out.stolen_seconds += value / ticks;
    }
  }
  return out;
}

}  // namespace

CpuSample sample_cpu(const std::vector<int>& cores, double seconds) {
  CpuSample sample;
  sample.cores.resize(cores.size());
  const int windows = std::max(1, static_cast<int>(std::lround(seconds / kWindowSeconds)));
  std::vector<uint64_t> sinks(cores.size(), 88172645463325252ULL);
  std::vector<std::exception_ptr> errors(cores.size());
  std::vector<std::thread> threads;
  std::latch bound(static_cast<std::ptrdiff_t>(cores.size()));
  std::atomic<double> start = 0;
  for (size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        bind_thread(cores[i]);
        bound.count_down();
        start.wait(0);
        sample.cores[i] = run_core(start, windows, sinks[i]);
      } catch (...) {
        errors[i] = std::current_exception();
        if (start == 0) bound.count_down();
      }
    });
  }
  bound.wait();
  const double begin = monotonic_seconds() + 0.002;
  start = begin;
  start.notify_all();
  // Counted while all of them run: from a little after their start to a little before their end.
  sleep_seconds(0.004);
  const SystemTime before = system_time(cores);
  const CgroupCpu group_before = read_cgroup_cpu();
  sleep_seconds(std::max(0.0, begin + windows * kWindowSeconds - 0.002 - monotonic_seconds()));
  const SystemTime after = system_time(cores);
  const CgroupCpu group_after = read_cgroup_cpu();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  sample.idle_seconds = after.idle_seconds - before.idle_seconds;
  sample.stolen_seconds = after.stolen_seconds - before.stolen_seconds;
  if (group_after.known) {
    sample.throttled_seconds = group_after.throttled_seconds - group_before.throttled_seconds;
  }
  return sample;
}

CpuShare judge_cpu(const CpuSample& sample, const std::vector<int>& cores) {
  TUTTI_CHECK(!sample.cores.empty() && sample.cores.size() == cores.size(), "{} cores, {} names",
              sample.cores.size(), cores.size());
  const size_t windows = sample.cores.front().size();
  TUTTI_CHECK(windows > 0, "no window");
  double wall = 0;
  double hidden = 0;
  std::vector<double> missing;  // [window] of all cores
  for (size_t window = 0; window < windows; ++window) {
    double window_wall = 0;
    double window_cpu = 0;
    for (const std::vector<CpuWindow>& core : sample.cores) {
      window_wall += core[window].wall_seconds;
      window_cpu += std::min(core[window].cpu_seconds, core[window].wall_seconds);
      hidden += core[window].hidden_seconds;
    }
    wall += window_wall;
    missing.push_back(1 - window_cpu / window_wall);
  }
  std::vector<double> clocks;
  for (const std::vector<CpuWindow>& core : sample.cores) {
    std::vector<double> fastest;
    fastest.reserve(core.size());
    for (const CpuWindow& window : core) fastest.push_back(window.iteration_seconds);
    clocks.push_back(kSteps * kCyclesPerStep / quantile(fastest, 0.5));
  }

  double total = 0;
  for (const double share : missing) total += share / static_cast<double>(windows);
  CpuShare out;
  const double idle = std::max({sample.idle_seconds, sample.throttled_seconds, 0.0}) / wall;
  out.withheld = std::min(idle, total);
  const double counted = std::min(sample.stolen_seconds / wall, total - out.withheld);
  out.disturbed = std::max(0.0, total - out.withheld - counted);
  const double sustained = quantile(missing, 0.25);
  out.others = std::clamp(sustained - out.withheld - counted, 0.0, out.disturbed);
  out.stolen = counted + hidden / wall;
  out.available = 1 - std::max(out.withheld + counted, sustained) - hidden / wall;

  out.clock_hz = quantile(clocks, 0.5);
  const auto slowest = std::min_element(clocks.begin(), clocks.end());
  out.slowest = *slowest / *std::max_element(clocks.begin(), clocks.end());
  out.slowest_core = cores[static_cast<size_t>(slowest - clocks.begin())];
  return out;
}

}  // namespace tutti::node
