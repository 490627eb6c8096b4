#include "tutti/engine/notes.h"

#include <mutex>
#include <set>
#include <utility>

namespace tutti::engine {
namespace {

struct Notes {
  std::mutex mutex;
  std::set<std::string> known;
  std::vector<std::string> waiting;
};

Notes& notes() {
  static Notes all;
  return all;
}

}  // namespace

void note(const std::string& text) {
  Notes& all = notes();
  const std::lock_guard lock(all.mutex);
  if (all.known.insert(text).second) all.waiting.push_back(text);
}

std::vector<std::string> take_notes() {
  Notes& all = notes();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.waiting, {});
}

}  // namespace tutti::engine
