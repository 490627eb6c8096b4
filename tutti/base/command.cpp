#include "tutti/base/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/spawn.h"

namespace tutti {
namespace {

constexpr double kLookSeconds = 0.02;

struct Pipe {
  std::array<int, 2> ends{-1, -1};
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      fail(ErrorKind::io, "no pipe can be opened: {}", std::strerror(errno));
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, double timeout_seconds) {
  Pipe output;
  Pipe error;
  SpawnOptions options;
  options.write_to(output.ends[1], error.ends[1]);
  const int id = spawn({}, words, options);
  output.close_end(1);
  error.close_end(1);
  CommandResult result;
  const double end = monotonic_seconds() + timeout_seconds;
  std::array<pollfd, 2> ends{pollfd{output.ends[0], POLLIN, 0}, pollfd{error.ends[0], POLLIN, 0}};
  const std::array<std::string*, 2> texts{&result.output, &result.error};
  int status = 0;
  bool ended = false;
  // What the program leaves running may hold the pipes: its own end is enough.
  while (!ended) {
    ended = ::waitpid(id, &status, WNOHANG) == id;
    if (!ended && monotonic_seconds() > end) {
      result.in_time = false;
      ::kill(-id, SIGKILL);
      ::waitpid(id, &status, 0);
      ended = true;
    }
    ::poll(ends.data(), ends.size(), ended ? 0 : static_cast<int>(kLookSeconds * 1000));
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0) continue;
      std::array<char, 4096> buffer{};
      do {
        if ((ends[i].revents & (POLLIN | POLLHUP)) == 0) break;
        const ssize_t size = ::read(ends[i].fd, buffer.data(), buffer.size());
        if (size > 0) texts[i]->append(buffer.data(), static_cast<size_t>(size));
        if (size == 0) ends[i].fd = -1;
      } while (ends[i].fd >= 0 && ::poll(&ends[i], 1, 0) > 0);
    }
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace tutti
