#include "tutti/chat/json_value.h"

#include "tutti/base/error.h"

namespace tutti::chat {
namespace {

Value nested_value(const Json& json, Origin origin, int depth) {
  if (depth > kMostNesting) {
    fail(ErrorKind::usage, "values are nested more than {} deep", kMostNesting);
  }
  if (json.is_array()) {
    Sequence list;
    for (const Json& item : json) list.items.push_back(nested_value(item, origin, depth + 1));
    return Value(std::move(list));
  }
  if (json.is_object()) {
    Dict dict;
    for (const auto& item : json.items()) {
      dict.items.emplace_back(Value(Text(item.key(), origin)),
                              nested_value(item.value(), origin, depth + 1));
    }
    return Value(std::move(dict));
  }
  if (json.is_string()) return Value(Text(json.get_ref<const std::string&>(), origin));
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    fail(ErrorKind::usage, "the integer {} has more than 64 bits", json.dump());
  }
  if (json.is_number()) return Value(json.get<int64_t>());
  return Value(nullptr);
}

}  // namespace

Value value_from_json(const Json& json, Origin origin) { return nested_value(json, origin, 1); }

}  // namespace tutti::chat
