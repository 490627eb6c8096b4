#include "tutti/checkpoint/huggingface/keys.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::checkpoint {
namespace {

std::string show_value(const Json& value) { return printable(dump_json(value)); }

}  // namespace

HfKeys::HfKeys(const Json& object, std::string_view path, std::string prefix)
    : object_(object), path_(path), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    fail(ErrorKind::usage, "{}: {} instead of a JSON object", path_,
         prefix_.empty() ? object.type_name() : prefix_ + " is " + object.type_name());
  }
}

const Json* HfKeys::find(const char* key) {
  know(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool HfKeys::has(const char* key) { return find(key) != nullptr; }

void HfKeys::wrong_type(const char* key, const char* wanted) const {
  fail(ErrorKind::usage, "{}: key '{}{}' is {}; expected {}", path_, prefix_, key,
       show_value(object_.at(key)), wanted);
}

void HfKeys::refuse(const char* key, const std::string& accepted) const {
  fail(ErrorKind::unsupported, "{}: '{}{}' is {}, which Tutti cannot compute; accepted: {}", path_,
       prefix_, key, show_value(object_.at(key)), accepted);
}

int64_t HfKeys::count(const char* key) {
  if (!has(key)) fail(ErrorKind::usage, "{}: key '{}{}' is missing", path_, prefix_, key);
  return count(key, 0);
}

int64_t HfKeys::count(const char* key, int64_t fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  constexpr int64_t kMost = int64_t{1} << 40;
  if (!value->is_number_integer() || (value->is_number_unsigned() && *value > uint64_t{kMost}) ||
      value->get<int64_t>() < 1) {
    wrong_type(key, "a whole number from 1 to 2^40");
  }
  return value->get<int64_t>();
}

double HfKeys::real(const char* key) {
  if (!has(key)) fail(ErrorKind::usage, "{}: key '{}{}' is missing", path_, prefix_, key);
  return real(key, 0);
}

double HfKeys::real(const char* key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) wrong_type(key, "a number");
  return value->get<double>();
}

bool HfKeys::flag(const char* key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong_type(key, "true or false");
  return value->get<bool>();
}

std::string HfKeys::text(const char* key, const std::string& fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) wrong_type(key, "a string");
  return value->get<std::string>();
}

const Json& HfKeys::object(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) {
    fail(ErrorKind::usage, "{}: key '{}{}' is missing", path_, prefix_, key);
  }
  if (!value->is_object()) wrong_type(key, "an object");
  return *value;
}

void HfKeys::only(const char* key, const std::vector<Json>& accepted, const std::string& remedy) {
  const Json* value = find(key);
  if (value == nullptr || std::find(accepted.begin(), accepted.end(), *value) != accepted.end()) {
    return;
  }
  std::vector<std::string> names;
  names.reserve(accepted.size());
  for (const Json& one : accepted) names.push_back(show_value(one));
  refuse(key, join(names, ", ") + remedy);
}

std::vector<std::string> HfKeys::unknown() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : object_.items()) {
    if (!value.is_null() && known_.count(key) == 0) names.push_back(key);
  }
  return names;
}

}  // namespace tutti::checkpoint
