// What the readers of a tokenizer.json share: members by key, and refusals that name the file.
#pragma once

#include <fmt/format.h>

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

  // `key` is the path of the member, such as normalizer.type.
  [[noreturn]] void refuse(const std::string& key, const std::string& value,
                           const std::string& supported = "") const {
    fail(ErrorKind::unsupported,
         "'{}': {} '{}' is not supported{}; use the model's tokenizer.model if it has one, or a "
         "corpus that was tokenized elsewhere, in Megatron-LM's format",
         origin_, key, value, supported.empty() ? "" : " (" + supported + " are)");
  }
  [[noreturn]] void damaged(const std::string& what) const {
    fail(ErrorKind::corrupt, "'{}': {}; take the file from its source again", origin_, what);
  }

  template <typename T>
  T get(const HfObject& object, const char* key) const {
    const HfObject* found = member(object, key);
    if (found == nullptr) damaged(fmt::format("key '{}' is missing", key));
    try {
      return found->get<T>();
    } catch (const HfObject::exception&) {
      damaged(fmt::format("key '{}' has the wrong type: {}", key, shown(*found)));
    }
  }
  template <typename T>
  T get_or(const HfObject& object, const char* key, T otherwise) const {
    return member(object, key) == nullptr ? otherwise : get<T>(object, key);
  }

  static std::string shown(const HfObject& value) {
    return value.dump(-1, ' ', false, HfObject::error_handler_t::replace).substr(0, 80);
  }

  const std::string& origin_;
};

}  // namespace tutti::data
