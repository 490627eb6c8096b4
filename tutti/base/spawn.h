// Common setup of started programs: signals unblocked and at their defaults, empty standard input.
// Used by child_process.h, command.h and launchers of ranks.
#pragma once

#include <spawn.h>

#include <map>
#include <string>
#include <vector>

namespace tutti {

// What the child is to have; callers add to it.
struct SpawnOptions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnOptions();
  ~SpawnOptions();
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;

  void add_to_file(const std::string& output);  // standard output and error at its end
  void write_to(int output_fd, int error_fd);   // standard output and error there
  bool in_own_session = false;                  // else in a process group of its own
};

using Environment = std::map<std::string, std::string>;
Environment current_environment();

// words[0] is the name that the child sees, and, without `program`, what is looked for in $PATH.
// Throws io with `what` cannot be started. Returns the process id.
int spawn(const std::string& program, const std::vector<std::string>& words, SpawnOptions& options,
          const Environment* environment = nullptr);

}  // namespace tutti
