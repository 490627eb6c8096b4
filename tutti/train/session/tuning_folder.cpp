#include "tutti/train/session/tuning_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "tutti/base/file.h"

namespace tutti::train {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Schedulers may start ranks with an empty environment.
std::string known_home() {
  std::array<char, 4096> text{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, text.data(), text.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return entry.pw_dir;
}

}  // namespace

std::string tuning_folder() {
  if (std::string given = environment("TUTTI_TUNING"); !given.empty()) return given;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return join_path(cache, "tutti");
  }
  std::string home = environment("HOME");
  if (home.empty()) home = known_home();
  return home.empty() ? "" : join_path(home, ".cache/tutti");
}

}  // namespace tutti::train
