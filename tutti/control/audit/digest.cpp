#include "tutti/control/audit/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <array>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::control {
namespace {

std::string hex(const unsigned char* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    fail(ErrorKind::unsupported, "SHA-256 is not available in this OpenSSL");
  }
  return hex(digest.data(), size);
}

std::string random_hex(int bytes) {
  std::vector<unsigned char> random(static_cast<size_t>(bytes));
  if (RAND_bytes(random.data(), bytes) != 1) {
    fail(ErrorKind::io, "the system's random generator gives nothing");
  }
  return hex(random.data(), random.size());
}

bool same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tutti::control
