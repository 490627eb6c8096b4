#include "tutti/endpoint/answer_text.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti::endpoint {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

struct Lead {
  size_t length = 0;                  // 0: starts no character
  uint8_t least = 0x80, most = 0xbf;  // of the second byte
};

// Table 3-7 of the Unicode standard.
Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xc2 && byte <= 0xdf) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte >= 0xf1 && byte <= 0xf3) return {4};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {};
}

// How many bytes at `at` are a character or the start of one; `is_whole` says which. 0: neither.
size_t subpart_at(std::string_view bytes, size_t at, bool& is_whole) {
  const Lead lead = lead_of(static_cast<uint8_t>(bytes[at]));
  size_t count = lead.length == 0 ? 0 : 1;
  while (count < lead.length && at + count < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[at + count]);
    const bool fits =
        count == 1 ? byte >= lead.least && byte <= lead.most : byte >= 0x80 && byte <= 0xbf;
    if (!fits) break;
    ++count;
  }
  is_whole = count > 0 && count == lead.length;
  return count;
}

// Whether the end of `text` from `at` on is how `stop` begins.
bool may_become(std::string_view text, size_t at, const std::string& stop) {
  const std::string_view rest = text.substr(at);
  return rest.size() < stop.size() && std::string_view(stop).substr(0, rest.size()) == rest;
}

}  // namespace

AnswerText::AnswerText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

void AnswerText::add(std::string_view bytes) {
  if (is_stopped_) return;
  bytes_ += bytes;
  take_whole(false);
  look_for_stops();
}

void AnswerText::finish() {
  if (!is_stopped_) {
    take_whole(true);
    look_for_stops();
  }
  ready_ = text_.size();
}

void AnswerText::take_whole(bool is_last) {
  size_t at = 0;
  while (at < bytes_.size()) {
    bool is_whole = false;
    const size_t count = subpart_at(bytes_, at, is_whole);
    if (is_whole) {
      text_.append(bytes_, at, count);
    } else if (count > 0 && at + count == bytes_.size() && !is_last) {
      break;  // the rest of it may follow
    } else {
      text_ += kReplacement;
    }
    at += std::max<size_t>(count, 1);
  }
  bytes_.erase(0, at);
}

void AnswerText::look_for_stops() {
  // The one that is whole first, however its bytes came: of two that end together the longer.
  size_t first = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = text_.find(stop, searched_);
    if (at == std::string::npos) continue;
    if (at + stop.size() > end || (at + stop.size() == end && at > first)) continue;
    first = at;
    end = at + stop.size();
  }
  if (first != std::string::npos) {
    is_stopped_ = true;
    text_.resize(first);
    bytes_.clear();
    ready_ = first;
    return;
  }
  size_t longest = 0;
  for (const std::string& stop : stops_) longest = std::max(longest, stop.size());
  size_t held = text_.size();
  for (size_t at = text_.size() - std::min(text_.size(), longest); at < text_.size(); ++at) {
    const bool may = std::any_of(stops_.begin(), stops_.end(), [&](const std::string& stop) {
      return may_become(text_, at, stop);
    });
    if (!may) continue;
    held = at;
    break;
  }
  searched_ = std::max(searched_, held);
  ready_ = std::max(ready_, held);
}

std::string whole_characters(std::string_view bytes) {
  AnswerText text;
  text.add(bytes);
  text.finish();
  return text.text();
}

}  // namespace tutti::endpoint
