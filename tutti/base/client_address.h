// The client of an HTTP request: the peer of the connection, or the address that a proxy forwards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The last address in `forwarded` (an X-Forwarded-For, to which each proxy adds whom it heard from)
// that is none of `proxies`; `peer` where that is not a proxy, or where no address is named.
std::string client_of(const std::string& peer, const std::vector<std::string>& proxies,
                      std::string_view forwarded);

// What the bounds of a client count by: an IPv4 address; of an IPv6 address its /64 network, which
// is what one subscriber has. Any other text stays as it is.
std::string network_of(const std::string& address);

// As text; an IPv4 address that came in through an IPv6 socket as IPv4. Empty: no address.
std::string plain_address(std::string_view text);

// Whether `address` is this machine's own: localhost, ::1, [::1], or an IPv4 address in
// 127.0.0.0/8. A name that merely begins like one is not: it may be anybody's.
bool is_loopback(std::string_view address);

}  // namespace tutti
