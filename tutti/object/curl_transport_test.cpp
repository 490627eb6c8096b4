// libcurl against real sockets: signed bytes arrive as they were signed, and the faults of a
// network end in the right bytes or in an error.
#include "tutti/object/curl_transport.h"

#include <gtest/gtest.h>

#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/object/client.h"
#include "tutti/object/testing/fake_store.h"
#include "tutti/object/testing/fault_server.h"

namespace tutti::object {
namespace {

const Uri kNamed = {"bucket", "folder/a b&c+d%41\xc3\xa9.bin"};

Settings settings_of(const FaultServer& server) {
  Settings settings = fake_settings();
  settings.endpoint = "http://" + server.host();
  return settings;
}

constexpr TransportLimits kImpatient = {.connect_seconds = 0.5, .stall_seconds = 1};

NetworkFault none(int64_t /*index*/) { return NetworkFault::none; }

std::string many_bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13);
  return bytes;
}

TEST(CurlTransport, EveryOperationArrivesAsItWasSigned) {
  const auto store = std::make_shared<FakeStore>();
  const FaultServer server(store, none);
  const Client client(settings_of(server), std::make_shared<CurlTransport>(), without_waiting(1));
  const std::string bytes = many_bytes(300'001);
  client.put(kNamed, bytes, {true, ""});
  EXPECT_EQ(client.get(kNamed), bytes);
  EXPECT_EQ(client.head(kNamed)->size_bytes, 300'001);
  std::string part(100'000, '\0');
  client.get_range(kNamed, 200'001, 100'000, client.head(kNamed)->etag, part.data());
  EXPECT_EQ(part, bytes.substr(200'001));
  client.put({"bucket", "empty"}, "");
  EXPECT_EQ(client.get({"bucket", "empty"}), "");
  const std::string id = client.begin_upload({"bucket", "large"});
  const UploadPart only = client.upload_part({"bucket", "large"}, id, 1, bytes);
  EXPECT_EQ(client.list_uploads("bucket", "la").size(), 1U);
  client.complete_upload({"bucket", "large"}, id, {only}, 300'001);
  EXPECT_EQ(client.list("bucket", "", true).objects.size(), 2U);
  EXPECT_EQ(client.list("bucket", "folder/", true).objects.at(0).key, kNamed.key);
  client.remove(kNamed);
  EXPECT_FALSE(client.head(kNamed));
  try {
    client.get(kNamed);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
  }
}

TEST(CurlTransport, ResetsAndBodiesCutShortAreTriedAgain) {
  const auto store = std::make_shared<FakeStore>();
  for (const NetworkFault fault : {NetworkFault::reset, NetworkFault::truncate}) {
    const FaultServer server(
        store, [fault](int64_t index) { return index % 3 != 2 ? fault : NetworkFault::none; });
    const Client client(settings_of(server), std::make_shared<CurlTransport>(), without_waiting(3));
    const std::string bytes = many_bytes(50'000);
    store->set_object("bucket/" + kNamed.key, bytes);
    EXPECT_EQ(client.get(kNamed), bytes);
    std::string part(20'000, '\0');
    client.get_range(kNamed, 10'000, 20'000, "", part.data());
    EXPECT_EQ(part, bytes.substr(10'000, 20'000));
    EXPECT_EQ(server.requests(), 6);
  }
}

TEST(CurlTransport, AStoreThatDoesNotAnswerIsGivenUp) {
  const auto store = std::make_shared<FakeStore>();
  const FaultServer server(
      store, [](int64_t) { return NetworkFault::wait; }, 600);
  const Client client(settings_of(server), std::make_shared<CurlTransport>("", kImpatient),
                      without_waiting(1));
  try {
    client.get(kNamed);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_NE(std::string(error.what()).find(server.host()), std::string::npos) << error.what();
  }
}

TEST(CurlTransport, NoServerAndNoTlsAreErrorsThatNameTheEndpoint) {
  std::string host;
  {
    const FaultServer server(std::make_shared<FakeStore>(), none);
    host = server.host();
    Settings settings = settings_of(server);
    settings.endpoint = "https://" + host;  // it does not speak TLS
    const Client client(settings, std::make_shared<CurlTransport>("", kImpatient),
                        without_waiting(1));
    EXPECT_THROW(client.get(kNamed), Error);
  }
  Settings settings = fake_settings();
  settings.endpoint = "http://" + host;  // which is closed now
  const Client client(settings, std::make_shared<CurlTransport>(), without_waiting(2));
  try {
    client.get(kNamed);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_NE(std::string(error.what()).find("2 attempts"), std::string::npos) << error.what();
  }
}

TEST(CurlTransport, ManyThreadsAtOnce) {
  const auto store = std::make_shared<FakeStore>();
  const FaultServer server(store, none);
  const Client client(settings_of(server), std::make_shared<CurlTransport>(), without_waiting(2));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const Uri uri = {"bucket", std::to_string(t) + "/" + std::to_string(i)};
        const std::string bytes = many_bytes(static_cast<size_t>(1000 * t + i));
        client.put(uri, bytes);
        EXPECT_EQ(client.get(uri), bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client.list("bucket", "", false).objects.size(), 80U);
}

}  // namespace
}  // namespace tutti::object
