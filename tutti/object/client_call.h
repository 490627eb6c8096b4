// One request of Client, before it is signed. Private to client*.cpp.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tutti/object/client.h"

namespace tutti::object {

struct Client::Call {
  std::string what;  // "read", "list"
  std::string method;
  Uri uri;
  Query query = {};
  std::map<std::string, std::string> headers = {};
  std::string_view body = {};
  char* into = nullptr;
  size_t into_size = 0;

  std::string target() const {
    return "s3://" + uri.bucket + (uri.key.empty() ? "" : "/" + uri.key);
  }
};

inline bool is_success(int status) { return status >= 200 && status < 300; }

}  // namespace tutti::object
