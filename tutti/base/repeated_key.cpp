#include "tutti/base/repeated_key.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

// Members of all objects of a text that is valid JSON: colons outside strings.
size_t members_in(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t quote = std::min(text.find('"', at), text.size());
    count +=
        static_cast<size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                       text.begin() + static_cast<std::ptrdiff_t>(quote), ':'));
    for (at = quote + 1; at < text.size(); ++at) {  // to behind the quote that ends the string
      at = std::min(text.find('"', at), text.size());
      size_t backslashes = 0;
      while (text[at - backslashes - 1] == '\\') ++backslashes;
      if (backslashes % 2 == 0) break;
    }
    ++at;
  }
  return count;
}

// The same of a value, in which a key is there once. Without recursion: lines nest as they like.
size_t members_in(const Json& value) {
  size_t count = 0;
  std::vector<const Json*> open = {&value};
  while (!open.empty()) {
    const Json& at = *open.back();
    open.pop_back();
    if (!at.is_structured()) continue;
    if (at.is_object()) count += at.size();
    for (const Json& item : at) {
      if (item.is_structured()) open.push_back(&item);
    }
  }
  return count;
}

std::optional<std::string> find_repeated_key(std::string_view text) {
  std::optional<std::string> repeated;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int /*depth*/, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !repeated) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) repeated = key;
    }
    return true;
  };
  const Json ignored = Json::parse(text.begin(), text.end(), look, false);
  return repeated;
}

}  // namespace

Json parse_json(std::string_view text, std::optional<std::string>& repeated) {
  repeated.reset();
  Json value = Json::parse(text.begin(), text.end(), nullptr, false);
  // Looking at every key costs a tenth of the time that corpora are prepared in, counting them
  // none.
  if (!value.is_discarded() && members_in(text) != members_in(value)) {
    repeated = find_repeated_key(text);
  }
  return value;
}

Json parse_unique_json(std::string_view text, std::string_view origin) {
  std::optional<std::string> repeated;
  Json value = parse_json(text, repeated);
  if (value.is_discarded()) return parse_json(text, origin);  // says what is wrong
  if (repeated) {
    fail(ErrorKind::corrupt, "{}: the key '{}' is given twice in one object; keep one of them",
         origin, printable(*repeated));
  }
  return value;
}

}  // namespace tutti
