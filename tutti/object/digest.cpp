#include "tutti/object/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "tutti/base/check.h"

namespace tutti::object {
namespace {

std::string digest_of(const EVP_MD* kind, std::string_view data) {
  std::string out(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  const int ok = EVP_Digest(data.data(), data.size(), reinterpret_cast<unsigned char*>(out.data()),
                            &size, kind, nullptr);
  TUTTI_CHECK(ok == 1, "a digest of {} bytes failed", data.size());
  out.resize(size);
  return out;
}

}  // namespace

std::string sha256(std::string_view data) { return digest_of(EVP_sha256(), data); }
std::string md5(std::string_view data) { return digest_of(EVP_md5(), data); }

std::string hmac_sha256(std::string_view key, std::string_view data) {
  std::string out(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                                   reinterpret_cast<unsigned char*>(out.data()), &size);
  TUTTI_CHECK(done != nullptr, "a keyed digest of {} bytes failed", data.size());
  out.resize(size);
  return out;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string from_hex(std::string_view text) {
  const auto value = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  std::string out;
  if (text.size() % 2 != 0) return out;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = value(text[i]);
    const int low = value(text[i + 1]);
    if (high < 0 || low < 0) return {};
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // and the zero that OpenSSL appends
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(size));
  return out;
}

}  // namespace tutti::object
