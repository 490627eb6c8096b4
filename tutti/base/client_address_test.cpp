#include "tutti/base/client_address.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(ClientAddress, OnlyProxiesAreBelieved) {
  const std::vector<std::string> proxies = {"127.0.0.1", "10.0.0.2"};
  EXPECT_EQ(client_of("192.0.2.1", proxies, "203.0.113.9"), "192.0.2.1");
  EXPECT_EQ(client_of("127.0.0.1", proxies, ""), "127.0.0.1");
  EXPECT_EQ(client_of("127.0.0.1", proxies, "203.0.113.9"), "203.0.113.9");
  // What a client claims stands before what the proxies have added.
  EXPECT_EQ(client_of("127.0.0.1", proxies, "198.51.100.7, 203.0.113.9, 10.0.0.2"), "203.0.113.9");
  EXPECT_EQ(client_of("127.0.0.1", proxies, "203.0.113.9, unknown"), "127.0.0.1");
  EXPECT_EQ(client_of("127.0.0.1", {}, "203.0.113.9"), "127.0.0.1");
}

TEST(ClientAddress, OneSubscriberIsOneNetwork) {
  EXPECT_EQ(network_of("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(network_of("2001:db8:1:2:3::4"), network_of("2001:db8:1:2:ffff::1"));
  EXPECT_NE(network_of("2001:db8:1:2::1"), network_of("2001:db8:1:3::1"));
  EXPECT_EQ(network_of("x"), "x");
}

TEST(ClientAddress, OnlyAddressesAreLoopback) {
  for (const char* own : {"localhost", "::1", "[::1]", "127.0.0.1", "127.8.9.10"}) {
    EXPECT_TRUE(is_loopback(own)) << own;
  }
  for (const char* other :
       {"127.evil.example", "127.", "127.0.0.1@x", "127.0.0.1.example", "128.0.0.1",
        "[::1].example", "localhost.example", "0.0.0.0", "::", ""}) {
    EXPECT_FALSE(is_loopback(other)) << other;
  }
}

TEST(ClientAddress, AddressesHaveOneForm) {
  EXPECT_EQ(plain_address("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(plain_address("2001:DB8::0:1"), "2001:db8::1");
  EXPECT_EQ(plain_address("localhost"), "");
  EXPECT_EQ(plain_address("192.0.2.1:80"), "");
}

}  // namespace
}  // namespace tutti
