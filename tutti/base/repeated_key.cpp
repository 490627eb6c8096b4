#include "tutti/base/repeated_key.h"

#include <set>
#include <vector>

namespace tutti {

Json parse_json(std::string_view text, std::optional<std::string>& repeated) {
  repeated.reset();
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
  return Json::parse(text.begin(), text.end(), look, false);
}

}  // namespace tutti
