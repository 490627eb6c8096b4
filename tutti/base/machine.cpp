#include "tutti/base/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <string_view>

#include "tutti/base/text.h"

namespace tutti {
namespace {

double parse_number(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Pseudo-files of the kernel have no size and cannot be mapped, hence not FileSystem.
void read_cpuinfo(Machine& machine) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = trim(std::string_view(line).substr(0, colon));
    const std::string_view value = trim(std::string_view(line).substr(colon + 1));
    if (key == "model name" && machine.cpu == "unknown") machine.cpu = value;
    if (key == "cpu MHz" && machine.clock_hz == 0) machine.clock_hz = 1e6 * parse_number(value);
  }
}

}  // namespace

Machine describe_machine() {
  Machine machine;
  machine.cpu = "unknown";
  read_cpuinfo(machine);
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) machine.cores = CPU_COUNT(&allowed);
  struct sysinfo info {};
  if (::sysinfo(&info) == 0) {
    machine.memory_bytes = static_cast<int64_t>(info.totalram) * info.mem_unit;
  }
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) machine.host = name;
  return machine;
}

std::string boot_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

bool is_process_stopped(int process) {
  // "PID (NAME) STATE ..."; a name may hold anything.
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  const size_t name_end = line.rfind(") ");
  return name_end != std::string::npos && line.compare(name_end + 2, 2, "T ") == 0;
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all_pages = 0;
  int64_t resident_pages = 0;
  if (!(statm >> all_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
}

int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace tutti
