// SHA-256 for the audit chain and for tokens, through OpenSSL.
#pragma once

#include <string>
#include <string_view>

namespace tutti::control {

std::string sha256_hex(std::string_view text);           // 64 lower-case hex digits
std::string random_hex(int bytes);                       // from the system's generator
bool same_text(std::string_view a, std::string_view b);  // in constant time for equal lengths

}  // namespace tutti::control
