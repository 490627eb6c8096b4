#include "tutti/comm/tcp_store.h"

#include <gtest/gtest.h>

#include "tutti/base/clock.h"
#include "tutti/comm/launch_environment.h"
#include "tutti/comm/message.h"
#include "tutti/comm/test_support.h"

namespace tutti::comm::testing {
namespace {

std::shared_ptr<Store> connect(const TcpStoreServer& server, const std::string& secret = "secret",
                               double timeout_seconds = 20) {
  return connect_store("127.0.0.1", {server.port()}, "run", secret, 3, timeout_seconds);
}

TEST(TcpStore, SetGetList) {
  TcpStoreServer server("127.0.0.1", {0}, "run", "secret");
  const auto client = connect(server);
  client->set("a/1", std::string("\0binary", 7));
  server.set("a/2", "");
  EXPECT_EQ(server.get("a/1", 0), std::string("\0binary", 7));
  EXPECT_EQ(client->get("a/2", 0), "");
  EXPECT_EQ(client->list("a/"), (std::vector<std::string>{"a/1", "a/2"}));
  EXPECT_TRUE(client->list("b").empty());
}

TEST(TcpStore, GetWaitsForWhatComesLater) {
  TcpStoreServer server("127.0.0.1", {0}, "run", "secret");
  const auto client = connect(server);
  std::thread later([&] {
    sleep_seconds(0.3);
    connect(server)->set("key", "value");
  });
  EXPECT_EQ(client->get("key", 60), "value");
  later.join();
  EXPECT_NE(peer_error([&] { client->get("never", 0.1); }).find("no never within 100 ms"),
            std::string::npos);
}

TEST(TcpStore, RefusesAWrongSecretOnBothSides) {
  TcpStoreServer server("127.0.0.1", {0}, "run", "secret");
  try {
    connect(server, "guess");
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::permission);
    EXPECT_STREQ(error.what(),
                 "the store refused rank 3: it does not know the secret of rank 0: TUTTI_SECRET "
                 "differs");
  }
  EXPECT_EQ(server.get("refused/0", 20),
            "rank 3: it does not know the secret of rank 0: TUTTI_SECRET differs");
}

TEST(TcpStore, LooksForItsOwnRunBehindOtherPorts) {
  TcpStoreServer other("127.0.0.1", {0}, "another run", "secret");
  TcpStoreServer server("127.0.0.1", {0}, "run", "secret");
  const auto client =
      connect_store("127.0.0.1", {other.port(), server.port()}, "run", "secret", 3, 20);
  client->set("key", "value");
  EXPECT_EQ(server.get("key", 0), "value");
  EXPECT_TRUE(other.list("key").empty());
  const std::string message = peer_error([&] { connect(other, "secret", 0.3); });
  EXPECT_NE(message.find("it belongs to the run run, the store to another run"), std::string::npos)
      << message;
}

TEST(TcpStore, TakesTheFirstFreePort) {
  TcpStoreServer first("127.0.0.1", {0}, "run", "secret");
  TcpStoreServer second("127.0.0.1", {first.port(), 0}, "run", "secret");
  EXPECT_NE(second.port(), first.port());
  EXPECT_THROW(TcpStoreServer("127.0.0.1", {first.port()}, "run", "secret"), Error);
}

TEST(TcpStore, WorldsMeetThere) {
  TcpStoreServer server("127.0.0.1", {0}, "run", "secret");
  const std::shared_ptr<SegmentSource> segments = make_thread_segments();
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      WorldOptions options;
      options.rank = rank;
      options.mesh = mesh_of(3);
      options.store = connect(server);
      options.segments = segments;
      options.threads = true;
      World world(std::move(options));
      const auto stream = engine::make_cpu_stream(1);
      Buffer one(DType::i32, 1);
      one.set(0, 1);
      world.all().all_reduce(*stream, one.view(), one.view()).wait(*stream);
      EXPECT_EQ(one.at(0), 3);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Parts are delimited, so that ("ab", "c") and ("a", "bc") have different proofs.
TEST(Proof, DependsOnSecretAndOnHowTheTextIsCut) {
  EXPECT_EQ(proof("secret", {"ab", "c"}), proof("secret", {"ab", "c"}));
  EXPECT_NE(proof("secret", {"ab", "c"}), proof("secret", {"a", "bc"}));
  EXPECT_NE(proof("secret", {"ab", "c"}), proof("guess", {"ab", "c"}));
  EXPECT_EQ(proof("", {}).size(), 64U);
  // HMAC-SHA256 of nothing under an empty key, a published value.
  EXPECT_EQ(proof("", {}), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace tutti::comm::testing
