#include "tutti/object/uri.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::object {
namespace {

constexpr std::string_view kScheme = "s3://";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The rules for names of buckets, as far as they keep a name from changing what a URL means.
bool is_bucket(std::string_view name) {
  if (name.size() < 3 || name.size() > 63) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

}  // namespace

// Also "s3:" and "s3:/", which parents of s3://BUCKET are called.
bool is_uri(std::string_view path) {
  return starts_with(path, kScheme) || path == "s3:" || path == "s3:/";
}

Uri parse_uri(std::string_view path) {
  const std::string_view rest =
      starts_with(path, kScheme) ? path.substr(kScheme.size()) : std::string_view();
  const size_t slash = rest.find('/');
  Uri uri;
  uri.bucket = rest.substr(0, slash);
  if (!is_bucket(uri.bucket)) {
    fail(ErrorKind::usage,
         "'{}' does not name an object: expected s3://BUCKET/KEY, and a bucket of 3 to 63 "
         "lower-case "
         "letters, digits, '-' and '.'",
         path);
  }
  if (slash == std::string_view::npos) return uri;
  for (const std::string_view part : split(rest.substr(slash + 1), '/')) {
    if (part.empty()) continue;  // a//b and a/ are what a/b and a are in a file system
    if (part == "." || part == "..") {
      fail(ErrorKind::usage, "'{}': '{}' has no meaning in the name of an object", path, part);
    }
    uri.key += (uri.key.empty() ? "" : "/") + std::string(part);
  }
  return uri;
}

std::string percent_encode(std::string_view text, bool slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_plain(c) || (c == '/' && !slash)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace tutti::object
