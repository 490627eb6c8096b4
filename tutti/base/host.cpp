#include "tutti/base/host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Pseudo-files of the kernel have no size and cannot be mapped, hence not FileSystem.
std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return std::string(trim(line));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void read_processors(HostSheet& host) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> sockets;
  int cores = 0;
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = trim(std::string_view(line).substr(0, colon));
    const std::string value(trim(std::string_view(line).substr(colon + 1)));
    if (key == "processor") ++host.threads;
    if (key == "physical id") sockets.insert(value);
    if (key == "cpu cores" && cores == 0) cores = std::atoi(value.c_str());
  }
  host.sockets = std::max<int>(1, static_cast<int>(sockets.size()));
  host.cores_per_socket = cores > 0 ? cores : host.threads / host.sockets;
}

std::string cache_text() {
  std::vector<std::string> parts;
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache";
  for (const std::string& name : names_in(folder)) {
    const std::string at = folder + "/" + name;
    const std::string level = first_line(at + "/level");
    if (level.empty()) continue;
    const std::string type = first_line(at + "/type");
    const char* suffix = type == "Data" ? "d" : type == "Instruction" ? "i" : "";
    parts.push_back(fmt::format("L{}{} {}", level, suffix, first_line(at + "/size")));
  }
  return join(parts, ", ");
}

std::string storage_type(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  const std::string device =
      fmt::format("/sys/dev/block/{}:{}", major(status.st_dev), minor(status.st_dev));
  // A partition has the queue of its disk.
  for (const char* queue : {"/queue/rotational", "/../queue/rotational"}) {
    const std::string rotational = first_line(device + queue);
    if (!rotational.empty()) return rotational == "1" ? "rotating disk" : "SSD";
  }
  return {};
}

std::string network_text() {
  std::vector<std::string> parts;
  for (const std::string& name : names_in("/sys/class/net")) {
    if (name == "lo") continue;
    const std::string speed = first_line("/sys/class/net/" + name + "/speed");
    const bool known = !speed.empty() && speed[0] != '-';
    parts.push_back(known ? name + " " + speed + " Mb/s" : name);
  }
  return join(parts, ", ");
}

std::string system_name() {
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);) {
    if (!starts_with(line, "PRETTY_NAME=")) continue;
    std::string name = line.substr(line.find('=') + 1);
    name.erase(std::remove(name.begin(), name.end(), '"'), name.end());
    return name;
  }
  return {};
}

}  // namespace

HostSheet describe_host(const std::string& folder) {
  const Machine machine = describe_machine();
  HostSheet host;
  host.processor = machine.cpu;
  read_processors(host);
  if (machine.clock_hz > 0) host.frequency = fmt::format("{:.0f} MHz", machine.clock_hz / 1e6);
  host.caches = cache_text();
  const auto nodes = names_in("/sys/devices/system/node");
  host.numa_nodes =
      static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [](const std::string& name) {
        return name.size() > 4 && starts_with(name, "node") && name[4] >= '0' && name[4] <= '9';
      }));
  host.memory = format_bytes(static_cast<double>(machine.memory_bytes));
  host.storage_type = storage_type(folder);
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) == 0) {
    host.storage =
        format_bytes(static_cast<double>(disk.f_blocks) * static_cast<double>(disk.f_frsize));
  }
  host.network = network_text();
  host.operating_system = system_name();
  utsname kernel{};
  if (::uname(&kernel) == 0) host.kernel = std::string(kernel.sysname) + " " + kernel.release;
  return host;
}

}  // namespace tutti
