// The one exception type of the program.
//
// Anything the outside world can get wrong (files, network, recipes, arguments) throws
// tutti::Error; it is caught once, in cli/main, and becomes a message and an exit code.
// A broken invariant of the program itself is not an Error: see check.h.
// Messages name the key or path, the value, and what would be accepted.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tutti {

enum class ErrorKind {
  usage,        // a wrong argument, recipe key or value: exit code 2
  not_found,    // a file or name that does not exist
  permission,   // the operating system said no
  corrupt,      // bytes that are not what their format or checksum promises
  no_space,     // disk full or quota exceeded
  io,           // any other failure of a device or file
  unsupported,  // understood, but this build or machine cannot do it
  diverged,     // training produced non-finite values it could not skip
  peer,         // another rank failed, vanished, did not arrive, or asked for something else
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Stable lower-case name, as it appears in events and JSON output.
const char* error_kind_name(ErrorKind kind);

// Exit codes that scripts and schedulers rely on (docs/formats.md).
enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,          // a retry may help
  exit_usage = 2,           // the command or recipe is wrong
  exit_requeue = 75,        // checkpointed: start me again
  exit_do_not_restart = 93  // a deterministic fault: a restart would fail the same way
};
int exit_code(ErrorKind kind);

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti
