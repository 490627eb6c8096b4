#include "tutti/train/tuning_folder.h"

#include <cstdlib>

#include "tutti/base/file.h"

namespace tutti::train {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string tuning_folder() {
  if (std::string given = environment("TUTTI_TUNING"); !given.empty()) return given;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return join_path(cache, "tutti");
  }
  const std::string home = environment("HOME");
  return home.empty() ? "" : join_path(home, ".cache/tutti");
}

}  // namespace tutti::train
