#include "tutti/base/client_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr size_t kNetworkBytes = 8;  // of an IPv6 address: 64 bits

std::string text_of(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  return ::inet_ntop(family, address, text, sizeof(text)) == nullptr ? std::string() : text;
}

}  // namespace

bool is_loopback(std::string_view address) {
  if (address == "localhost" || address == "::1" || address == "[::1]") return true;
  const std::string text(address);
  in_addr v4{};
  return text.find('\0') == std::string::npos && ::inet_pton(AF_INET, text.c_str(), &v4) == 1 &&
         (ntohl(v4.s_addr) >> 24) == IN_LOOPBACKNET;
}

std::string plain_address(std::string_view text) {
  const std::string address(text);
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return text_of(AF_INET, &v4);
  in6_addr v6{};
  if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return {};
  if (!IN6_IS_ADDR_V4MAPPED(&v6)) return text_of(AF_INET6, &v6);
  std::memcpy(&v4, v6.s6_addr + sizeof(v6) - sizeof(v4), sizeof(v4));
  return text_of(AF_INET, &v4);
}

std::string network_of(const std::string& address) {
  in6_addr v6{};
  if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return address;
  std::memset(v6.s6_addr + kNetworkBytes, 0, sizeof(v6) - kNetworkBytes);
  return text_of(AF_INET6, &v6) + "/64";
}

std::string client_of(const std::string& peer, const std::vector<std::string>& proxies,
                      std::string_view forwarded) {
  const auto is_proxy = [&](const std::string& address) {
    return std::find(proxies.begin(), proxies.end(), address) != proxies.end();
  };
  std::string client = peer;
  const auto names = split(forwarded, ',');
  for (size_t i = names.size(); i > 0 && is_proxy(client); --i) {
    const std::string named = plain_address(trim(names[i - 1]));
    if (named.empty()) break;
    client = named;
  }
  return client;
}

}  // namespace tutti
