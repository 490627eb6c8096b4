#include "tutti/control/web_live.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/hash.h"
#include "tutti/base/json.h"

namespace tutti::control {
namespace {

constexpr int64_t kLookMs = 5'000;  // between two looks at what is not in the database
constexpr size_t kMostKept = 1000;  // readers and pages

}  // namespace

std::string LiveParts::version_of(const WebView& view) {
  if (!watched_) watched_ = open_();
  Query query = watched_->query("PRAGMA data_version");
  query.next();
  return fmt::format("{} {} {}", query.integer(0), view.caller.now_ms / kLookMs,
                     view.controller_runs);
}

LiveAnswer LiveParts::answer(const WebView& view, const std::string& known) {
  const std::string key = fmt::format("{} {} {} {} {}", view.caller.user, view.form_key,
                                      view.pages.live, view.pages.ended, view.pages.budgets);
  // Before anything is read: what changes meanwhile makes another version.
  std::string version;
  {
    const std::scoped_lock lock(mutex_);
    version = version_of(view);
    const auto kept = kept_.find(key);
    if (kept != kept_.end() && kept->second.version == version && kept->second.tag == known) {
      return {true, known, ""};
    }
  }
  Json sections = Json::object();
  for (const report::Section& section : live_sections(view)) sections[section.id] = section.html;
  Json tiles = Json::array();
  for (const report::Tile& tile : live_tiles(view)) tiles.push_back({tile.value, tile.note});
  Json body = {{"sections", std::move(sections)}, {"tiles", std::move(tiles)}};
  const std::string tag = fmt::format("\"{}\"", hash_hex(hash_text(dump_json(body))));
  {
    const std::scoped_lock lock(mutex_);
    if (kept_.size() >= kMostKept) kept_.clear();
    kept_[key] = {std::move(version), tag};
  }
  if (tag == known) return {true, tag, ""};
  body["time"] = format_utc(static_cast<double>(view.caller.now_ms) / 1000);
  return {false, tag, dump_json(body)};
}

}  // namespace tutti::control
