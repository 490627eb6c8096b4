#include "tutti/control/launches/lock_holders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include "tutti/base/file.h"
#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr size_t kMostWords = 4;  // of a process's command line

// Files of /proc have no size: they cannot be read the way others are.
std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <typename Number>
Number number_of(std::string_view text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::vector<LockHolder> parse_locks(std::string_view text, std::string_view device,
                                    unsigned long file_number) {
  // "4: POSIX  ADVISORY  WRITE 4711 fe:00:11380389 120 120"; of one that waits "4: -> POSIX ...".
  std::vector<LockHolder> holders;
  for (const std::string_view line : split(text, '\n')) {
    std::vector<std::string_view> words;
    for (const std::string_view word : split(line, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.size() < 6 || words[1] != "POSIX") continue;
    const size_t colon = words[5].rfind(':');
    if (colon == std::string_view::npos ||
        (!device.empty() && words[5].substr(0, colon) != device) ||
        number_of<unsigned long>(words[5].substr(colon + 1)) != file_number) {
      continue;
    }
    const LockHolder found{number_of<int>(words[4]), words[3] == "WRITE"};
    const auto known = std::find_if(holders.begin(), holders.end(), [&](const LockHolder& each) {
      return each.process == found.process;
    });
    if (known == holders.end()) {
      holders.push_back(found);
    } else {
      known->writes = known->writes || found.writes;
    }
  }
  return holders;
}

std::string parse_mount_device(std::string_view text, unsigned long mount_number) {
  // "25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw"
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 3 || number_of<unsigned long>(words[0]) != mount_number) continue;
    const size_t colon = words[2].find(':');
    if (colon == std::string_view::npos) continue;
    return fmt::format("{:02x}:{:02x}", number_of<unsigned>(words[2].substr(0, colon)),
                       number_of<unsigned>(words[2].substr(colon + 1)));
  }
  return {};
}

std::vector<LockHolder> lock_holders(const std::string& path) {
  struct statx status {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_MNT_ID, &status) != 0) return {};
  // The device is that of the mount: st_dev is another one on btrfs, and then no holder would be
  // found. Where the system does not report it the mount, the number alone must do.
  std::string device;
  if ((status.stx_mask & STATX_MNT_ID) != 0) {
    device = parse_mount_device(read_proc("/proc/self/mountinfo"), status.stx_mnt_id);
  }
  std::vector<LockHolder> holders = parse_locks(read_proc("/proc/locks"), device, status.stx_ino);
  std::erase_if(holders, [](const LockHolder& each) { return each.process == ::getpid(); });
  return holders;
}

std::string describe(const LockHolder& holder) {
  const std::string folder = fmt::format("/proc/{}", holder.process);
  const std::string line = read_proc(folder + "/cmdline");
  std::vector<std::string> words;
  for (const std::string_view word : split(line, '\0')) {
    if (word.empty() || words.size() == kMostWords) break;
    words.emplace_back(words.empty() ? base_name(word) : word);
  }
  struct stat status {};
  std::string owner;
  if (::stat(folder.c_str(), &status) == 0) {
    const passwd* entry = ::getpwuid(status.st_uid);  // NOLINT(concurrency-mt-unsafe)
    owner = entry == nullptr ? fmt::format("uid {}", status.st_uid) : entry->pw_name;
  }
  if (words.empty() || owner.empty()) return fmt::format("process {}", holder.process);
  return fmt::format("process {} ({}, of {})", holder.process, printable(join(words, " ")), owner);
}

}  // namespace tutti::control
