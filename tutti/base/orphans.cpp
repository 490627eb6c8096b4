#include "tutti/base/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tutti/base/clock.h"

namespace tutti {
namespace {

constexpr double kOrphanLookSeconds = 0.02;

// Of the line "PID (NAME) STATE PARENT ..." in /proc/PID/stat; a name may hold anything.
int parent_of(const std::filesystem::path& process) {
  std::string line;
  std::getline(std::ifstream(process / "stat"), line);
  const size_t name_end = line.rfind(") ");
  constexpr size_t kToParent = 4;  // ") S "
  return name_end == std::string::npos ? 0 : std::atoi(line.c_str() + name_end + kToParent);
}

std::set<int> children() {
  std::set<int> found;
  std::error_code error;
  const auto all = std::filesystem::directory_iterator("/proc", error);
  for (const auto& entry : all) {
    const std::string name = entry.path().filename();
    const bool is_process =
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_process && parent_of(entry.path()) == ::getpid()) found.insert(std::atoi(name.c_str()));
  }
  return found;
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

int end_orphans(double patience_seconds) {
  const double begin = monotonic_seconds();
  std::set<int> asked;  // those that an asked one leaves come later
  int ended = 0;
  while (true) {
    int gone = 0;
    while ((gone = ::waitpid(-1, nullptr, WNOHANG)) > 0) ++ended;
    if (gone < 0 && errno != EINTR) return ended;
    const double waited = monotonic_seconds() - begin;
    if (waited > 2 * patience_seconds) return ended;
    const bool is_late = waited > patience_seconds;
    for (const int child : children()) {
      if (is_late) {
        ::kill(child, SIGKILL);
      } else if (asked.insert(child).second) {
        ::kill(child, SIGTERM);
      }
    }
    sleep_seconds(kOrphanLookSeconds);
  }
}

}  // namespace tutti
