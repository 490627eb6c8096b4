// SHA-256, HMAC and MD5 through OpenSSL, and the texts in which they travel.
#pragma once

#include <string>
#include <string_view>

namespace tutti::object {

// Raw bytes: 32, 32 and 16 of them.
std::string sha256(std::string_view data);
std::string hmac_sha256(std::string_view key, std::string_view data);
std::string md5(std::string_view data);

std::string to_hex(std::string_view bytes);   // lower case
std::string from_hex(std::string_view text);  // empty when it is not one
std::string to_base64(std::string_view bytes);

}  // namespace tutti::object
