// Runs another program to completion and captures its output: for tools such as those of a batch
// system.
#pragma once

#include <string>
#include <vector>

namespace tutti {

struct CommandResult {
  int exit_code = 0;    // 128 + n when signal n ended it
  bool in_time = true;  // false: it was killed when the timeout was over
  std::string output;   // standard output
  std::string error;    // standard error
  bool ok() const { return in_time && exit_code == 0; }
};

// words[0] is looked for in $PATH. The program has this process's environment, no input, and all
// signals at their defaults. Throws io when it cannot be started.
CommandResult run_command(const std::vector<std::string>& words, double timeout_seconds);

}  // namespace tutti
