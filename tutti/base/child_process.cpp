#include "tutti/base/child_process.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/spawn.h"

namespace tutti {
namespace {

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

int start_detached(const std::string& executable, const std::vector<std::string>& arguments,
                   const std::string& output) {
  SpawnOptions options;
  options.add_to_file(output);
  posix_spawn_file_actions_addclosefrom_np(&options.files, STDERR_FILENO + 1);
  options.in_own_session = true;
  return spawn(executable, arguments, options);
}

ChildProcess::ChildProcess(const std::string& executable, const std::vector<std::string>& arguments,
                           const std::string& output) {
  SpawnOptions options;
  options.add_to_file(output);
  id_ = spawn(executable, arguments, options);
}

ChildProcess::~ChildProcess() {
  if (exit_code()) return;
  ::kill(-id_, SIGKILL);
  int status = 0;
  while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> ChildProcess::exit_code() {
  if (exit_code_) return exit_code_;
  int status = 0;
  if (::waitpid(id_, &status, WNOHANG) == id_) exit_code_ = code_of(status);
  return exit_code_;
}

void ChildProcess::send(int signal) const {
  if (!exit_code_) ::kill(id_, signal);
}

bool end_with_parent(int parent) {
  // Not SIGTERM: it comes once per thread of the parent, and a second SIGTERM means "at once".
  ::prctl(PR_SET_PDEATHSIG, SIGUSR2);
  // It may have ended before the request.
  return ::getppid() == parent;
}

ProcessLock::ProcessLock(const std::string& path) {
  // Without O_CLOEXEC: children inherit it.
  file_ =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644);  // NOLINT(android-cloexec-open)
  if (file_ < 0) fail(ErrorKind::io, "'{}' cannot be opened: {}", path, std::strerror(errno));
  held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
}

ProcessLock::~ProcessLock() { ::close(file_); }

std::unique_ptr<ProcessLock> take_lock(const std::string& path, double patience_seconds) {
  constexpr double kPauseSeconds = 0.05;
  const double end = monotonic_seconds() + patience_seconds;
  while (true) {
    auto lock = std::make_unique<ProcessLock>(path);
    if (lock->held()) return lock;
    if (monotonic_seconds() > end) return nullptr;
    lock.reset();
    sleep_seconds(kPauseSeconds);
  }
}

}  // namespace tutti
