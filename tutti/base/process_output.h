// Runs a program and reads what it writes, with secrets in its environment.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/spawn.h"

namespace tutti {

// Runs a process to its end and gives what it wrote to standard output; standard input is empty,
// standard error is dropped, and it inherits no open files. `variables` are set in its environment,
// which, unlike arguments, other accounts cannot read. How it ended is not returned: the caller may
// reap children elsewhere. For any thread. Throws io when it cannot be started.
std::string output_of(const std::string& executable, const std::vector<std::string>& arguments,
                      const Environment& variables);

}  // namespace tutti
