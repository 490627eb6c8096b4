#include "tutti/endpoint/request_fields.h"

#include <cmath>
#include <limits>

#include "tutti/base/text.h"
#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {

std::string json_type(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::null: return "null";
    default: return "a number";
  }
}

// 4.0 is an integer, too: some clients write all numbers so.
int64_t json_integer(const Json& value, const std::string& name, int64_t least, int64_t most) {
  bool is_one = value.is_number_integer();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    is_one = std::nearbyint(number) == number && std::abs(number) < 9e15;
  }
  if (!is_one) refuse_param(name, "'{}' must be an integer, not {}", name, json_type(value));
  const bool is_huge =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t number = is_huge                   ? std::numeric_limits<int64_t>::max()
                         : value.is_number_float() ? static_cast<int64_t>(value.get<double>())
                                                   : value.get<int64_t>();
  if (is_huge || number < least || number > most) {
    refuse_param(name, "'{}' must be between {} and {}, not {}", name, least, most,
                 dump_json(value));
  }
  return number;
}

const Json* RequestFields::find(const std::string& name) {
  known_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void RequestFields::read(const std::string& name, std::string& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (!found->is_string()) {
    refuse_param(name, "'{}' must be a string, not {}", name, json_type(*found));
  }
  value = found->get<std::string>();
}

void RequestFields::read(const std::string& name, bool& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (!found->is_boolean()) {
    refuse_param(name, "'{}' must be true or false, not {}", name, json_type(*found));
  }
  value = found->get<bool>();
}

void RequestFields::read(const std::string& name, int64_t& value, int64_t least, int64_t most) {
  if (const Json* found = find(name)) value = json_integer(*found, name, least, most);
}

void RequestFields::read(const std::string& name, double& value, double least, double most) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (!found->is_number()) {
    refuse_param(name, "'{}' must be a number, not {}", name, json_type(*found));
  }
  const auto number = found->get<double>();
  if (!(number >= least && number <= most)) {
    refuse_param(name, "'{}' must be between {} and {}, not {}", name, least, most,
                 dump_json(*found));
  }
  value = number;
}

std::optional<int64_t> RequestFields::integer(const std::string& name, int64_t least,
                                              int64_t most) {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  return json_integer(*found, name, least, most);
}

void RequestFields::ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void RequestFields::refuse_unless(const std::string& name, bool (*is_harmless)(const Json&),
                                  std::string_view what) {
  const Json* found = find(name);
  if (found != nullptr && !is_harmless(*found)) {
    refuse_param(name, "'{}': {}", name, what);
  }
}

void RequestFields::refuse_others() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.count(name) > 0 || value.is_null()) continue;
    const std::string shown = printable(std::string_view(name).substr(0, 80));
    throw ApiError(400, "unknown parameter '" + shown + "'", shown, "unknown_parameter");
  }
}

}  // namespace tutti::endpoint
