// Which other processes of this machine have locks on a file, for messages that say whom to ask and
// for commands that need exclusive access.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::control {

struct LockHolder {
  bool operator==(const LockHolder&) const = default;
  int process = 0;
  bool writes = false;  // keeps others from writing
};

// Of the lines of /proc/locks those that hold, not wait for, a POSIX lock on the file of that
// number on that device ("fe:00", hexadecimal; empty: on any), one entry per process.
std::vector<LockHolder> parse_locks(std::string_view text, std::string_view device,
                                    unsigned long file_number);

// Of the lines of /proc/self/mountinfo the device of that mount, as /proc/locks writes it; empty:
// it is not among them.
std::string parse_mount_device(std::string_view text, unsigned long mount_number);

// Of the file at `path` by others than this process; none where there is none or it is unknown.
std::vector<LockHolder> lock_holders(const std::string& path);

// "process 4711 (tutti controller run, of ada)"
std::string describe(const LockHolder& holder);

}  // namespace tutti::control
