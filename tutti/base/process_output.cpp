#include "tutti/base/process_output.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/spawn.h"

namespace tutti {
namespace {

int start(const std::string& executable, const std::vector<std::string>& arguments,
          const Environment& variables, int output) {
  SpawnOptions options;
  posix_spawn_file_actions_adddup2(&options.files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&options.files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&options.files, STDERR_FILENO + 1);
  Environment environment = current_environment();
  for (const auto& [name, value] : variables) environment[name] = value;
  return spawn(executable, arguments, options, &environment);
}

}  // namespace

std::string output_of(const std::string& executable, const std::vector<std::string>& arguments,
                      const Environment& variables) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    fail(ErrorKind::io, "no pipe can be opened: {}", std::strerror(errno));
  }
  int id = 0;
  try {
    id = start(executable, arguments, variables, ends[1]);
  } catch (const Error&) {
    for (const int end : ends) ::close(end);
    throw;
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(ends[0], buffer, sizeof(buffer));
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(id, &status, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace tutti
