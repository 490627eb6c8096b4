#include "tutti/cli/endpoint/api_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/digest.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kKeyPrefix = "tutti";
constexpr const char* kKeysHeading =
    "# API keys of `tutti endpoint --api-key-file`: name, id, salt, hash.\n";

bool is_hex(std::string_view text, size_t size) {
  return text.size() == size &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

ApiKeys ApiKeys::read(FileSystem& files, const std::string& path) {
  ApiKeys keys;
  const std::string text = read_file(files, path);
  int64_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty() || starts_with(line, "#")) continue;
    const auto words = split(trim(line), ' ');
    const bool is_key =
        words.size() == 4 && is_hex(words[1], 12) && is_hex(words[2], 32) && is_hex(words[3], 64);
    if (!is_key) {
      fail(ErrorKind::corrupt, "{}:{}: expected NAME ID SALT HASH; --add-api-key writes such lines",
           path, number);
    }
    keys.keys_[std::string(words[1])] = {std::string(words[0]), std::string(words[2]),
                                         std::string(words[3])};
  }
  if (keys.keys_.empty()) {
    fail(ErrorKind::usage, "{}: there is no key in it; add one by --add-api-key NAME", path);
  }
  return keys;
}

bool ApiKeys::accepts(const std::string& key) const {
  const auto parts = split(key, '-');
  if (parts.size() != 3 || parts[0] != kKeyPrefix) return false;
  const auto found = keys_.find(std::string(parts[1]));
  if (found == keys_.end()) return false;
  return control::same_text(control::sha256_hex(found->second.salt + std::string(parts[2])),
                            found->second.hash);
}

std::string add_api_key(FileSystem& files, const std::string& path, const std::string& name) {
  const bool is_word = !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '#';
  });
  if (!is_word) fail(ErrorKind::usage, "--add-api-key '{}': give a name without spaces", name);
  std::string text = files.exists(path) ? read_file(files, path) : std::string(kKeysHeading);
  if (!text.empty() && text.back() != '\n') text += '\n';
  const std::string id = control::random_hex(6);
  const std::string secret = control::random_hex(32);
  const std::string salt = control::random_hex(16);
  text += fmt::format("{} {} {} {}\n", name, id, salt, control::sha256_hex(salt + secret));
  write_file_atomic(files, path, text);
  return fmt::format("{}-{}-{}", kKeyPrefix, id, secret);
}

}  // namespace tutti::cli
