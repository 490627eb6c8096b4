#include "tutti/base/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tutti/base/error.h"

namespace tutti {
namespace {

struct SpawnOptions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnOptions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;
};

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

ChildProcess::ChildProcess(const std::string& executable, const std::vector<std::string>& arguments,
                           const std::string& output) {
  SpawnOptions options;
  posix_spawn_file_actions_addopen(&options.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&options.files, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&options.files, STDOUT_FILENO, STDERR_FILENO);
  sigset_t none;
  sigset_t defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&options.attributes, &none);
  posix_spawnattr_setsigdefault(&options.attributes, &defaults);
  posix_spawnattr_setpgroup(&options.attributes, 0);
  posix_spawnattr_setflags(&options.attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int error = ::posix_spawn(&id_, executable.c_str(), &options.files, &options.attributes,
                                  words.data(), environ);
  if (error != 0) {
    fail(ErrorKind::io, "'{}' cannot be started (output to '{}'): {}", executable, output,
         std::strerror(error));
  }
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
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have ended before the request.
  return ::getppid() == parent;
}

ProcessLock::ProcessLock(const std::string& path) {
  // Without O_CLOEXEC: children inherit it.
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT, 0644);  // NOLINT(android-cloexec-open)
  if (file_ < 0) fail(ErrorKind::io, "'{}' cannot be opened: {}", path, std::strerror(errno));
  held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
}

ProcessLock::~ProcessLock() { ::close(file_); }

}  // namespace tutti
