#include "tutti/base/spawn.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tutti/base/error.h"

namespace tutti {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// With SIGCHLD ignored a parent never learns of the end of a child: the system reaps them then, and
// no caller can wait for one.
void keep_ended_children() {
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) return;
  std::signal(SIGCHLD, SIG_DFL);
}

}  // namespace

SpawnOptions::SpawnOptions() {
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
}

SpawnOptions::~SpawnOptions() {
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
}

void SpawnOptions::add_to_file(const std::string& output) {
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
}

void SpawnOptions::write_to(int output_fd, int error_fd) {
  posix_spawn_file_actions_adddup2(&files, output_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, error_fd, STDERR_FILENO);
}

Environment current_environment() {
  Environment out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) out[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return out;
}

int spawn(const std::string& program, const std::vector<std::string>& words, SpawnOptions& options,
          const Environment* environment) {
  keep_ended_children();
  posix_spawn_file_actions_addopen(&options.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  sigset_t none;
  sigset_t defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE}) {
    sigaddset(&defaults, signal);
  }
  posix_spawnattr_setsigmask(&options.attributes, &none);
  posix_spawnattr_setsigdefault(&options.attributes, &defaults);
  if (!options.in_own_session) posix_spawnattr_setpgroup(&options.attributes, 0);
  const int session_flag = options.in_own_session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(
      &options.attributes,
      static_cast<int16_t>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | session_flag));
  std::vector<std::string> entries;
  if (environment != nullptr) {
    entries.reserve(environment->size());
    for (const auto& [name, value] : *environment) {
      entries.push_back(fmt::format("{}={}", name, value));
    }
  }
  std::vector<char*> variables = pointers(entries);
  char** const given = environment == nullptr ? environ : variables.data();
  int id = 0;
  const int failed = program.empty()
                         ? ::posix_spawnp(&id, words[0].c_str(), &options.files,
                                          &options.attributes, pointers(words).data(), given)
                         : ::posix_spawn(&id, program.c_str(), &options.files, &options.attributes,
                                         pointers(words).data(), given);
  if (failed != 0) {
    fail(ErrorKind::io, "'{}' cannot be started: {}", program.empty() ? words[0] : program,
         std::strerror(failed));
  }
  return id;
}

}  // namespace tutti
