// A library to be preloaded (LD_PRELOAD): the n-th write, rename or fsync of a process kills it or
// fails. io_test.py says which by environment variables:
//
//   FAULTY_IO_UNDER   files below this folder count; others are left alone
//   FAULTY_IO_OP      write, rename or fsync (fdatasync too)
//   FAULTY_IO_NTH     which of them, from 1; 0: none
//   FAULTY_IO_DO      kill: before it; tear: half of a write, then kill; ENOSPC, EIO: it fails
//   FAULTY_IO_TIMES   how many fail from that one on; 0: all (default 1)
//   FAULTY_IO_RANK    of this rank only, and only before ranks are started again
//   FAULTY_IO_LOG     a line "OP PATH" for each, to learn how many there are
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

struct Plan {
  std::string under = variable("FAULTY_IO_UNDER");
  std::string op = variable("FAULTY_IO_OP");
  std::string what = variable("FAULTY_IO_DO");
  std::string log = variable("FAULTY_IO_LOG");
  long nth = std::atol(variable("FAULTY_IO_NTH").c_str());
  long times =
      variable("FAULTY_IO_TIMES").empty() ? 1 : std::atol(variable("FAULTY_IO_TIMES").c_str());
  bool is_meant = true;
  Plan() {
    const std::string rank = variable("FAULTY_IO_RANK");
    const std::string generation = variable("TUTTI_GENERATION");
    if (rank.empty()) return;
    is_meant = rank == variable("RANK") && (generation.empty() || generation == "1");
  }
};

const Plan& plan() {
  static const Plan the_plan;
  return the_plan;
}

std::string path_of(int file) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  char path[PATH_MAX];
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

enum class Fate { none, kill, tear, fail };

// What becomes of this one; errno is set when it fails.
Fate fate_of(const char* op, const std::string& path) {
  const Plan& the_plan = plan();
  if (!the_plan.is_meant || the_plan.under.empty() || path.rfind(the_plan.under, 0) != 0) {
    return Fate::none;
  }
  if (!the_plan.log.empty()) {
    const std::string line = std::string(op) + " " + path + "\n";
    const int file = open(the_plan.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) {
      if (next<ssize_t(int, const void*, size_t)>("write")(file, line.data(), line.size()) < 0) {
        std::abort();
      }
      close(file);
    }
  }
  static std::atomic<long> count = 0;
  if (the_plan.op != op || the_plan.nth == 0) return Fate::none;
  const long number = ++count;
  if (number < the_plan.nth) return Fate::none;
  if (the_plan.what == "kill") return Fate::kill;
  if (the_plan.what == "tear") return Fate::tear;
  if (the_plan.times > 0 && number >= the_plan.nth + the_plan.times) return Fate::none;
  errno = the_plan.what == "EIO" ? EIO : ENOSPC;
  return Fate::fail;
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

template <typename Function, typename... Arguments>
auto unless_faulty(const char* op, const std::string& path, const char* name,
                   Arguments... arguments) {
  using Result = decltype(next<Function>(name)(arguments...));
  const Fate fate = fate_of(op, path);
  if (fate == Fate::fail) return static_cast<Result>(-1);
  if (fate != Fate::none) die();
  return next<Function>(name)(arguments...);
}

// What databases write with.
ssize_t positioned(const char* name, int file, const void* data, size_t size, off_t at) {
  const Fate fate = fate_of("write", path_of(file));
  if (fate == Fate::fail) return -1;
  const auto really = next<ssize_t(int, const void*, size_t, off_t)>(name);
  if (fate == Fate::tear && really(file, data, size / 2, at) < 0) return -1;
  if (fate != Fate::none) die();
  return really(file, data, size, at);
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* data, size_t size) {
  const Fate fate = fate_of("write", path_of(file));
  if (fate == Fate::fail) return -1;
  const auto really = next<ssize_t(int, const void*, size_t)>("write");
  if (fate == Fate::tear && really(file, data, size / 2) < 0) return -1;
  if (fate != Fate::none) die();
  return really(file, data, size);
}

ssize_t writev(int file, const iovec* parts, int count) {
  return unless_faulty<ssize_t(int, const iovec*, int)>("write", path_of(file), "writev", file,
                                                        parts, count);
}

ssize_t pwrite(int file, const void* data, size_t size, off_t at) {
  return positioned("pwrite", file, data, size, at);
}

ssize_t pwrite64(int file, const void* data, size_t size, off64_t at) {
  return positioned("pwrite64", file, data, size, at);
}

int fsync(int file) { return unless_faulty<int(int)>("fsync", path_of(file), "fsync", file); }

int fdatasync(int file) {
  return unless_faulty<int(int)>("fsync", path_of(file), "fdatasync", file);
}

int rename(const char* from, const char* to) noexcept {
  return unless_faulty<int(const char*, const char*)>("rename", to, "rename", from, to);
}
}
