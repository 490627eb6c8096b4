#include "tutti/comm/rendezvous/tcp_store.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>

#include "tutti/base/clock.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/rendezvous/message.h"
#include "tutti/comm/testing/test_support.h"

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

TEST(TcpStore, FindsItsRunOnOtherPorts) {
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

// One that answers any client.
class Stranger {
 public:
  Stranger() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    at_.sin_family = AF_INET;
    at_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at_;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at_), length), 0);
    listen(listener_, 1);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at_), &length);
  }
  ~Stranger() { close(listener_); }
  int port() const { return ntohs(at_.sin_port); }
  int accept_one() const { return accept(listener_, nullptr, nullptr); }

 private:
  int listener_;
  sockaddr_in at_ = {};
};

TEST(TcpStore, ReflectedProofsAreRejected) {
  const Stranger stranger;
  std::thread echo([&] {
    const int socket = stranger.accept_one();
    send_message(socket, {"tutti store 1", random_token()});
    send_message(socket, {"welcome", receive_message(socket).back()});
    close(socket);
  });
  try {
    connect_store("127.0.0.1", {stranger.port()}, "run", "secret", 3, 20);
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::permission) << error.what();
  }
  echo.join();
}

// Two ends of one connection.
struct Connected {
  Connected() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0); }
  ~Connected() {
    for (const int end : ends) close(end);
  }
  std::array<int, 2> ends = {};
};

TEST(Message, InconsistentPartsAreAnError) {
  using namespace std::string_literals;
  for (const std::string& bytes : {"\1\0\0\0x"s, "\3\0\0\0xyz"s, "\5\0\0\0\2\0\0\0x"s,
                                   "\6\0\0\0\1\0\0\0xy"s, "\xff\xff\xff\xff"s}) {
    const Connected pair;
    ASSERT_EQ(write(pair.ends[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_THROW(receive_message(pair.ends[1]), Error) << bytes.size();
  }
  const Connected pair;
  send_message(pair.ends[0], {std::string(100, 'x')});
  EXPECT_THROW(receive_message(pair.ends[1], 99), Error);
  EXPECT_THROW(send_message(pair.ends[0], {std::string(kMostMessageBytes, 'x')}), Error);
}

TEST(Message, ConnectionsAreProbed) {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  tune_connection(one);
  int seconds = 0;
  socklen_t length = sizeof seconds;
  ASSERT_EQ(getsockopt(one, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, &length), 0);
  EXPECT_EQ(seconds, 30);
  ASSERT_EQ(getsockopt(one, SOL_SOCKET, SO_KEEPALIVE, &seconds, &length), 0);
  EXPECT_NE(seconds, 0);
  close(one);
}

// An answer that comes late must not be taken for that to the next question.
TEST(TcpStore, LostConnectionsSendNothing) {
  const Stranger stranger;
  std::thread server([&] {
    const int socket = stranger.accept_one();
    send_message(socket, {"tutti store 1", "token"});
    const std::vector<std::string> hello = receive_message(socket);
    send_message(socket,
                 {"welcome", proof("secret", {"server", "token", hello[0], hello[1], hello[2]})});
    receive_message(socket);  // the question
    ASSERT_EQ(write(socket, "\1\0\0\0x", 5), 5);
    send_message(socket, {"value", "old"});
    EXPECT_THROW(receive_message(socket), Error);  // no other question
    close(socket);
  });
  const auto client = connect_store("127.0.0.1", {stranger.port()}, "run", "secret", 3, 20);
  EXPECT_NE(peer_error([&] { client->set("a", "b"); }).find("a message with a wrong length"),
            std::string::npos);
  EXPECT_NE(peer_error([&] { client->get("key", 0); }).find("a message with a wrong length"),
            std::string::npos);
  server.join();
}

TEST(TcpStore, ThreadsShareAConnectionWithoutWaitingForEachOther) {
  TcpStoreServer server("127.0.0.1", {0}, "run", "secret");
  const auto client = connect(server);
  auto waiting = std::async(std::launch::async, [&] { return client->get("late", 60); });
  const double begin = monotonic_seconds();
  for (int i = 0; i < 3; ++i) {
    sleep_seconds(0.03);
    client->set(fmt::format("meanwhile/{}", i), "");
  }
  EXPECT_LT(monotonic_seconds() - begin, 30);
  client->set("late", "value");
  EXPECT_EQ(waiting.get(), "value");
}

// Parts are delimited, so that ("ab", "c") and ("a", "bc") have different proofs.
TEST(Proof, DependsOnSecretAndFieldBoundaries) {
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
