#include "tutti/control/web/live.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/hash.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr int64_t kLookMs = 5'000;  // between two looks at what is not in the database
constexpr size_t kMostKept = 1000;  // readers and pages

// Of the parts that a tag names: "HASH.HASH...", with the quotes of an ETag.
std::vector<std::string> hashes_of(std::string_view tag) {
  std::vector<std::string> hashes;
  if (tag.size() < 2) return hashes;
  for (const std::string_view part : split(tag.substr(1, tag.size() - 2), '.')) {
    hashes.emplace_back(part);
  }
  return hashes;
}

}  // namespace

std::string LiveParts::version(int64_t now_ms, bool controller_runs) {
  const std::scoped_lock lock(mutex_);
  if (!watched_) watched_ = open_();
  Query query = watched_->query("PRAGMA data_version");
  query.next();
  return fmt::format("{} {} {}", query.integer(0), now_ms / kLookMs, controller_runs);
}

LiveAnswer LiveParts::answer(const WebView& view, const std::string& known) {
  const std::string key = fmt::format("{} {} {} {} {}", view.caller.user, view.form_key,
                                      view.pages.live, view.pages.ended, view.pages.budgets);
  // Before anything is read: what changes meanwhile makes another version.
  std::string version = this->version(view.caller.now_ms, view.controller_runs);
  {
    const std::scoped_lock lock(mutex_);
    const auto kept = kept_.find(key);
    if (kept != kept_.end() && kept->second.version == version && kept->second.tag == known) {
      return {true, known, ""};
    }
  }
  const std::vector<report::Section> sections = live_sections(view);
  Json tiles = Json::array();
  for (const report::Tile& tile : live_tiles(view)) tiles.push_back({tile.value, tile.note});
  std::vector<std::string> hashes;
  hashes.reserve(sections.size() + 1);
  for (const report::Section& section : sections) {
    hashes.push_back(hash_hex(hash_text(section.id + "\n" + section.html)));
  }
  hashes.push_back(hash_hex(hash_text(dump_json(tiles))));
  const std::string tag = fmt::format("\"{}\"", join(hashes, "."));
  {
    const std::scoped_lock lock(mutex_);
    if (kept_.size() >= kMostKept) kept_.clear();
    kept_[key] = {std::move(version), tag};
  }
  if (tag == known) return {true, tag, ""};
  // The sections depend on the reader: with another number all are sent.
  const std::vector<std::string> had = hashes_of(known);
  Json changed = Json::object();
  for (size_t i = 0; i < sections.size(); ++i) {
    if (had.size() == hashes.size() && had[i] == hashes[i]) continue;
    changed[sections[i].id] = sections[i].html;
  }
  Json body = {{"sections", std::move(changed)}, {"tiles", std::move(tiles)}};
  body["time"] = format_utc(static_cast<double>(view.caller.now_ms) / 1000);
  return {false, tag, dump_json(body)};
}

}  // namespace tutti::control
