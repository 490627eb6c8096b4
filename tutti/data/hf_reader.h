// What the readers of a tokenizer.json share: members by key, and refusals that name the file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tutti/base/error.h"

namespace tutti::data {

// Not tutti::Json, which keeps the order of keys and looks them up one by one: a vocabulary has
// hundreds of thousands.
using HfObject = nlohmann::json;

class HfReader {
 public:
  explicit HfReader(const std::string& origin) : origin_(origin) {}

 protected:
  // The member, or nothing when it is absent or null.
  static const HfObject* member(const HfObject& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::unsupported, "'{}': {} is not supported", origin_, what);
  }

  template <typename T>
  T get(const HfObject& object, const char* key) const {
    const HfObject* found = member(object, key);
    if (found == nullptr) fail(ErrorKind::corrupt, "'{}': key '{}' is missing", origin_, key);
    try {
      return found->get<T>();
    } catch (const HfObject::exception&) {
      fail(ErrorKind::corrupt, "'{}': key '{}' has the wrong type: {}", origin_, key,
           found->dump(-1, ' ', false, HfObject::error_handler_t::replace).substr(0, 80));
    }
  }
  template <typename T>
  T get_or(const HfObject& object, const char* key, T otherwise) const {
    return member(object, key) == nullptr ? otherwise : get<T>(object, key);
  }

  const std::string& origin_;
};

}  // namespace tutti::data
