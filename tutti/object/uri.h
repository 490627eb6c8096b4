// s3://BUCKET/KEY, the form in which objects are named.
#pragma once

#include <string>
#include <string_view>

namespace tutti::object {

struct Uri {
  std::string bucket;
  std::string key;  // without a leading or trailing slash; empty: the bucket itself
};

bool is_uri(std::string_view path);  // begins with s3:
// Throws usage for anything but s3://BUCKET[/KEY] with a valid name of a bucket.
Uri parse_uri(std::string_view path);

// RFC 3986: all but letters, digits and -._~ as %XX; a slash only where `slash` is false.
std::string percent_encode(std::string_view text, bool slash = true);
std::string percent_decode(std::string_view text);

}  // namespace tutti::object
