#include "tutti/control/launches/local_launcher.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/control/launches/fault_files.h"

namespace tutti::control {
namespace {

// The session that a process belongs to; 0: it is gone.
int session_of(const std::string& process) {
  std::FILE* file = std::fopen(("/proc/" + process + "/stat").c_str(), "r");
  if (file == nullptr) return 0;
  char line[512] = {};
  const size_t size = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  // "PID (name) state parent group session ...": the name may hold anything, even ')'.
  const std::string_view text(line, size);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  const auto words = split(text.substr(name_end + 1), ' ');
  return words.size() > 4 ? std::atoi(std::string(words[4]).c_str()) : 0;
}

// Every process that a supervisor started, and itself: it leads a session.
void kill_session(FileSystem& files, int session) {
  for (const DirectoryEntry& entry : files.list("/proc")) {
    if (entry.name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (session_of(entry.name) == session) ::kill(std::atoi(entry.name.c_str()), SIGKILL);
  }
}

}  // namespace

LaunchFolder LocalLauncher::folder_of(const LaunchKey& key) const {
  return {files_, job_folder(folder_, key.job, key.stamp)};
}

bool LocalLauncher::is_alive(const LaunchKey& key) {
  const auto found = started_.find({key.job, key.generation});
  if (found == started_.end()) return false;
  int status = 0;
  if (::waitpid(found->second, &status, WNOHANG) == 0) return true;
  started_.erase(found);
  return false;
}

void LocalLauncher::start(const LaunchOrder& order) {
  LaunchFolder folder = folder_of(order.key);
  const int64_t generation = order.key.generation;
  if (is_alive(order.key) || folder.read_begun(generation)) return;
  if (folder.newest() > generation) return;  // status() says so
  files_.create_directories(folder.path());
  folder.write_order(order);
  folder.set_newest(generation);
  std::vector<std::string> words(supervisor_.begin() + 1, supervisor_.end());
  words.push_back(folder.path());
  words.push_back(std::to_string(generation));
  started_[{order.key.job, generation}] =
      start_detached(supervisor_.front(), words, folder.output_path());
}

LaunchStatus LocalLauncher::status(const LaunchKey& key) {
  LaunchStatus status;
  LaunchFolder folder = folder_of(key);
  const bool had_started = started_.count({key.job, key.generation}) > 0;
  const bool alive = is_alive(key);
  if (!files_.is_directory(folder.path())) return status;
  if (const int64_t newest = folder.newest(); newest > key.generation) {
    if (!folder.take_ended(key.generation, status)) {
      status.elapsed_ms = folder.read_alive(key.generation);
    }
    status.phase = LaunchPhase::superseded;
    status.newer_generation = newest;
    return status;
  }
  // In this order: a launch that ends in between is seen as ended.
  const bool held = !ProcessLock(folder.lock_path()).held();
  const auto begun = folder.read_begun(key.generation);
  if (folder.take_ended(key.generation, status)) return status;
  if (!begun) {
    const bool asked =
        folder.is_asked_to_die(key.generation) || folder.is_asked_to_stop(key.generation);
    if (alive || (held && !asked)) {
      status.phase = LaunchPhase::starting;
    } else if (had_started && !asked) {
      status.phase = LaunchPhase::failed;
      status.detail = fmt::format("its supervisor ended early; see {}", folder.output_path());
    }
    return status;
  }
  if (!held || begun->boot != boot_id()) {
    status.phase = LaunchPhase::lost;
    status.elapsed_ms = folder.read_alive(key.generation);
    status.detail = begun->boot != boot_id() ? "the machine was rebooted"
                                             : "its supervisor died without a report";
    return status;
  }
  status.phase = LaunchPhase::running;
  status.elapsed_ms = steady_milliseconds() - begun->steady_ms;
  return status;
}

void LocalLauncher::stop(const LaunchKey& key) { folder_of(key).ask_to_stop(key.generation); }

void LocalLauncher::kill(const LaunchKey& key) {
  LaunchFolder folder = folder_of(key);
  const bool again = folder.is_asked_to_die(key.generation);
  folder.ask_to_die(key.generation);
  // Asked before and still there: its supervisor cannot do it any more.
  const auto begun = folder.read_begun(key.generation);
  const bool gone = ProcessLock(folder.lock_path()).held();
  if (again && !gone && begun && begun->boot == boot_id()) kill_session(files_, begun->process);
}

std::vector<Fault> LocalLauncher::faults(const LaunchKey& key, const std::string& run_folder) {
  return read_faults(files_, run_folder, key);
}

}  // namespace tutti::control
