// Typed reading of the keys of a config.json, which records the keys that were queried.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::checkpoint {

// Throws usage for a missing key or a wrong type and unsupported for a value that is not accepted;
// errors name the file, the key, the value and what is accepted. null counts as absent.
class HfKeys {
 public:
  // `prefix` precedes keys in messages: "rope_scaling.".
  HfKeys(const Json& object, std::string_view path, std::string prefix = "");

  bool has(const char* key);
  int64_t count(const char* key);  // required; at least 1
  int64_t count(const char* key, int64_t fallback);
  double real(const char* key);
  double real(const char* key, double fallback);
  bool flag(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  const Json& object(const char* key);  // required

  // Throws unsupported unless the key is absent or has one of these values.
  void only(const char* key, const std::vector<Json>& accepted, const std::string& remedy = "");

  [[noreturn]] void refuse(const char* key, const std::string& accepted) const;
  void know(const char* key) { known_.insert(key); }
  std::vector<std::string> unknown() const;  // keys that were not queried, unless null

 private:
  const Json* find(const char* key);
  [[noreturn]] void wrong_type(const char* key, const char* wanted) const;

  const Json& object_;
  std::string path_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tutti::checkpoint
