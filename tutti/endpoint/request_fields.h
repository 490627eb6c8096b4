// The members of a request's body, read one by one with their types and ranges; what has not been
// read at the end is refused.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tutti/base/json.h"

namespace tutti::endpoint {

class RequestFields {
 public:
  explicit RequestFields(const Json& object) : object_(object) {}

  // Null where the member is absent or null.
  const Json* find(const std::string& name);
  // Absent: the present value stays. Each throws ApiError 400 naming the member.
  void read(const std::string& name, std::string& value);
  void read(const std::string& name, bool& value);
  void read(const std::string& name, int64_t& value, int64_t least, int64_t most);
  void read(const std::string& name, double& value, double least, double most);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);

  void ignore(std::initializer_list<const char*> names);
  // Refuses a member that is anything but null or what comes to the same as its absence.
  void refuse_unless(const std::string& name, bool (*is_harmless)(const Json&),
                     std::string_view what);
  void refuse_others() const;

 private:
  const Json& object_;
  std::set<std::string> known_;
};

// "a string", ...: what a value is.
std::string json_type(const Json& value);
int64_t json_integer(const Json& value, const std::string& name, int64_t least, int64_t most);

}  // namespace tutti::endpoint
