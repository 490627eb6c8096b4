// A child process with its output in a file. It is started with posix_spawn, never fork, which is
// safe with threads, and in its own process group, so that Ctrl-C on the terminal reaches only this
// process, which forwards it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// The path that starts this program again, the same file even when it was replaced since.
inline constexpr const char* kThisExecutable = "/proc/self/exe";

class ChildProcess {
 public:
  // arguments[0] is the name that the child sees. Signals are unblocked and at their defaults in
  // it, standard input is empty, standard output and error are added to the end of `output`. Throws
  // io.
  ChildProcess(const std::string& executable, const std::vector<std::string>& arguments,
               const std::string& output);
  ~ChildProcess();  // kills a child that still runs and waits for it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int id() const { return id_; }
  // Once it has ended: its exit code, 128 + n when signal n ended it. Does not wait.
  std::optional<int> exit_code();
  void send(int signal) const;  // nothing once it has ended

 private:
  int id_ = 0;
  std::optional<int> exit_code_;
};

// Starts a process in a session of its own that lives on when this one ends. It inherits no open
// files; standard input is empty, standard output and error are added to the end of `output`. A
// long-lived caller should reap it when it has ended (waitpid). Throws io. Returns its process id.
int start_detached(const std::string& executable, const std::vector<std::string>& arguments,
                   const std::string& output);

// To be called by a child: asks the system for SIGUSR2 (signals.h: save and stop) when the process
// `parent` that started it is gone, however that ended. False when it is gone already.
bool end_with_parent(int parent);

// Holds a lock on the file `path` (created) for as long as the object or any child process that was
// started meanwhile lives: its holder knows that no process of an earlier holder is left. Throws io
// when the file cannot be opened.
class ProcessLock {
 public:
  explicit ProcessLock(const std::string& path);
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;
  bool held() const { return held_; }  // false: another process holds it

 private:
  int file_ = -1;
  bool held_ = false;
};

// The lock, tried again for so long while others hold it; null when it was not to be had.
std::unique_ptr<ProcessLock> take_lock(const std::string& path, double patience_seconds);

}  // namespace tutti
