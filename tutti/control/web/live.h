// The parts of the page that change, as its script asks for them: those that have changed since it
// asked last. Where nothing has, the request may be held until something does (server.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tutti/control/store/database.h"
#include "tutti/control/web/sections.h"

namespace tutti::control {

struct LiveAnswer {
  bool unchanged = false;  // since the reader was given `tag`
  std::string tag;         // names this state of all parts: an ETag, with its quotes
  std::string body;        // JSON of what has changed; empty where nothing has
};

// For any thread.
class LiveParts {
 public:
  // `open` gives connections to the database of the views. One of them is kept, to learn of changes
  // without looking at what has changed.
  explicit LiveParts(std::function<std::unique_ptr<Database>()> open) : open_(std::move(open)) {}

  // `known`: the tag of what the reader has; empty: nothing. Health, runs and the clock are looked
  // at every five seconds.
  LiveAnswer answer(const WebView& view, const std::string& known);

  // Differs from the one before wherever answer() might.
  std::string version(int64_t now_ms, bool controller_runs);

 private:
  struct Kept {
    std::string version;
    std::string tag;
  };
  std::function<std::unique_ptr<Database>()> open_;
  std::mutex mutex_;
  std::unique_ptr<Database> watched_;
  std::map<std::string, Kept> kept_;  // by session and pages
};

}  // namespace tutti::control
