#include "tutti/base/json.h"

#include "tutti/base/error.h"

namespace tutti {

Json parse_json(std::string_view text, std::string_view origin) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::corrupt, "{}: not valid JSON: {}", origin, error.what());
  }
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void fail_json_member(const Json& object, const char* key, std::string_view origin,
                      const char* reason) {
  const bool present = object.is_object() && object.contains(key);
  fail(ErrorKind::corrupt, "{}: key '{}' {}{}", origin, key, reason,
       present ? ": " + dump_json(object.at(key)) : "");
}

}  // namespace tutti
