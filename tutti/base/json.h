// JSON values, through nlohmann-json; keys keep the order in which they were written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti {

using Json = nlohmann::ordered_json;

// Parses one JSON value. Throws corrupt naming `origin` (a path), the position and the cause.
Json parse_json(std::string_view text, std::string_view origin);

// The member `key` of `object` as T. Throws corrupt naming `origin` and the key when it is absent
// or of another type.
template <typename T>
T json_get(const Json& object, const char* key, std::string_view origin);

// Compact text; bytes that are not UTF-8 are replaced, so any string can be written.
std::string dump_json(const Json& value);

[[noreturn]] void fail_json_member(const Json& object, const char* key, std::string_view origin,
                                   const char* reason);

template <typename T>
T json_get(const Json& object, const char* key, std::string_view origin) {
  if (!object.is_object() || !object.contains(key)) {
    fail_json_member(object, key, origin, "is missing");
  }
  try {
    return object.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail_json_member(object, key, origin, "has the wrong type");
  }
}

}  // namespace tutti
