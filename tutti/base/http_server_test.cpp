#include "tutti/base/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/testing/http_exchange.h"

namespace tutti {
namespace {

using http_testing::holds;
using http_testing::HttpClient;
using http_testing::kClose;
using http_testing::kPatienceSeconds;
using http_testing::RunningServer;

TEST(HttpServer, AnswersWholeRequests) {
  const RunningServer server;
  const std::string answer = server.ask("POST /a?b=c HTTP/1.1\r\n" + kClose +
                                        "X-A: 1\r\nx-a: 2\r\nContent-Length: 4\r\n\r\nbody");
  EXPECT_TRUE(holds(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(holds(answer, "X-B: b\r\n")) << answer;
  EXPECT_TRUE(holds(answer, "\r\n\r\nPOST /a|b=c|1, 2|body|127.0.0.1\n")) << answer;
  const std::string head = server.ask("HEAD /a HTTP/1.1\r\n" + kClose + "\r\n");
  EXPECT_TRUE(holds(head, "Content-Length: 20\r\n")) << head;
  EXPECT_FALSE(holds(head, "GET /a")) << head;
  EXPECT_TRUE(holds(server.ask("GET /a HTTP/1.0\r\n\r\n"), "GET /a||||127.0.0.1\n"));
}

TEST(HttpServer, AConnectionServesSeveralRequests) {
  const RunningServer server;
  const HttpClient client(server.port());
  client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(holds(client.read("127.0.0.1\n"), "GET /1"));
  client.send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET /3 HTTP/1.1\r\n" + kClose + "\r\n");
  const std::string both = client.read();
  EXPECT_TRUE(holds(both, "GET /2") && holds(both, "GET /3")) << both;
}

TEST(HttpServer, SendsContinueToClientsThatExpectIt) {
  const RunningServer server;
  const HttpClient client(server.port());
  client.send("POST / HTTP/1.1\r\n" + kClose + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_TRUE(holds(client.read(), "|ab|"));
}

TEST(HttpServer, OversizedRequestsAreReported) {
  HttpOptions options;
  options.limits.body_bytes = 100'000;
  options.limits.header_bytes = 2000;
  const RunningServer server(std::move(options));
  const std::string big = server.ask(
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100001\r\n\r\n" + std::string(100'001, 'x'));
  EXPECT_TRUE(holds(big, " 413 ")) << big;
  EXPECT_TRUE(holds(big, "the request's body has 100001 bytes; at most 100000 are accepted"));
  EXPECT_TRUE(holds(server.ask("POST / HTTP/1.1\r\n" + kClose + "Content-Length: 100000\r\n\r\n" +
                               std::string(100'000, 'x')),
                    "200 OK"));
  const std::string chunked =
      server.ask("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n186a1\r\n" +
                 std::string(100'001, 'x') + "\r\n0\r\n\r\n");
  EXPECT_TRUE(holds(chunked, " 413 ")) << chunked;
  const std::string header =
      server.ask("GET / HTTP/1.1\r\nX-Long: " + std::string(3000, 'x') + "\r\n\r\n");
  EXPECT_TRUE(holds(header, " 431 ")) << header;
  EXPECT_TRUE(holds(header, "at most 2000 bytes are accepted")) << header;
  EXPECT_TRUE(holds(server.ask("what is this\r\n\r\n"), " 400 "));
}

TEST(HttpServer, WholeHeadersAndBodiesHaveDeadlines) {
  HttpOptions options;
  options.limits.header_seconds = 0.2;
  options.limits.body_seconds = 0.2;
  options.limits.idle_seconds = 0.2;
  const RunningServer server(std::move(options));
  EXPECT_TRUE(HttpClient(server.port()).is_cut_off("x"));
  const HttpClient in_header(server.port());
  in_header.send("GET / HTTP/1.1\r\nHost: h\r\n");
  EXPECT_TRUE(in_header.is_cut_off("X: 1\r\n"));
  const HttpClient in_body(server.port());
  in_body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n");
  EXPECT_TRUE(in_body.is_cut_off("x"));
  const HttpClient idle(server.port());
  idle.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(holds(idle.read(), "200 OK"));  // and then nothing, until it is closed
}

TEST(HttpServer, SlowClientsMakeWay) {
  HttpOptions options;
  options.limits.connections = 8;
  options.limits.header_seconds = kPatienceSeconds;
  options.limits.body_seconds = kPatienceSeconds;
  const RunningServer server(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 32; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server.port()));
    slow.back()->send(i % 2 == 0 ? "GET / HT" : "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx");
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(holds(server.ask("GET /a HTTP/1.1\r\n" + kClose + "\r\n"), "200 OK"));
  }
  EXPECT_TRUE(slow.front()->is_cut_off("x"));
}

TEST(HttpServer, AClientHasABoundOfItsOwn) {
  HttpOptions options;
  options.limits.connections_per_client = 4;
  options.limits.header_seconds = kPatienceSeconds;
  const RunningServer server(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 5; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server.port()));
    slow.back()->send("GET");
  }
  EXPECT_TRUE(slow.front()->is_cut_off("x"));
}

TEST(HttpServer, AFullQueueAnswersBusy) {
  std::promise<void> entered;
  std::promise<void> go;
  HttpOptions options;
  options.limits.workers = 1;
  options.limits.queued_requests = 0;
  options.handler = [&](const HttpRequest&) {
    entered.set_value();
    go.get_future().wait();
    return HttpResponse();
  };
  const RunningServer server(std::move(options));
  const HttpClient first(server.port());
  first.send("GET / HTTP/1.1\r\n" + kClose + "\r\n");
  entered.get_future().wait();
  const std::string busy = server.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(holds(busy, " 503 ") && holds(busy, "Retry-After: 5\r\n")) << busy;
  go.set_value();
  EXPECT_TRUE(holds(first.read(), "200 OK"));
}

// A handler that holds requests until it is opened.
struct Gate {
  std::atomic<bool> open = false;
  std::atomic<int> asked = 0;

  HttpResponse operator()(const HttpRequest& request) {
    HttpResponse response;
    response.hold = request.path == "/wait" && !open;
    response.body = request.held_seconds > 0 ? "held\n" : "at once\n";
    ++asked;
    return response;
  }
  void wait_until_asked(int times) const {
    for (const double end = monotonic_seconds() + kPatienceSeconds; asked < times;) {
      ASSERT_LT(monotonic_seconds(), end);
      sleep_seconds(0.005);
    }
  }
};

TEST(HttpServer, WakingRetriesHeldRequests) {
  Gate gate;
  HttpOptions options;
  options.limits.workers = 1;
  options.handler = std::ref(gate);
  const RunningServer server(std::move(options));
  const HttpClient first(server.port());
  const HttpClient second(server.port());
  first.send("GET /wait HTTP/1.1\r\n" + kClose + "\r\n");
  second.send("GET /wait HTTP/1.1\r\n" + kClose + "\r\n");
  gate.wait_until_asked(2);
  // They keep no worker from others.
  EXPECT_TRUE(holds(server.ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), "at once"));
  server.wake();
  gate.wait_until_asked(5);
  gate.open = true;
  server.wake();
  EXPECT_TRUE(holds(first.read(), "held"));
  EXPECT_TRUE(holds(second.read(), "held"));
}

TEST(HttpServer, WakingDuringARequestIsNotLost) {
  std::promise<void> entered;
  std::promise<void> go;
  std::atomic<int> asked = 0;
  HttpOptions options;
  options.handler = [&](const HttpRequest&) {
    HttpResponse response;
    response.hold = asked++ == 0;
    if (response.hold) {
      entered.set_value();
      go.get_future().wait();
    }
    return response;
  };
  const RunningServer server(std::move(options));
  const HttpClient client(server.port());
  client.send("GET / HTTP/1.1\r\n" + kClose + "\r\n");
  entered.get_future().wait();
  server.wake();
  // The wake has been served once a later connection has been.
  EXPECT_TRUE(holds(server.ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), "200 OK"));
  go.set_value();
  EXPECT_TRUE(holds(client.read(), "200 OK"));
}

TEST(HttpServer, HeldRequestsMakeWay) {
  Gate gate;
  HttpOptions options;
  options.limits.connections = 4;
  options.handler = std::ref(gate);
  const RunningServer server(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> held;
  for (int i = 0; i < 4; ++i) {
    held.push_back(std::make_unique<HttpClient>(server.port()));
    held.back()->send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    gate.wait_until_asked(i + 1);
  }
  EXPECT_TRUE(holds(server.ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), "at once"));
  EXPECT_TRUE(held.front()->is_cut_off("x"));
  gate.open = true;
  server.wake();
  EXPECT_TRUE(holds(held.back()->read("held\n"), "held"));
}

TEST(HttpServer, HandlerExceptionsAreLogged) {
  std::promise<std::string> logged;
  HttpOptions options;
  options.log = [&](const std::string& text) { logged.set_value(text); };
  const RunningServer server(std::move(options));
  const std::string answer = server.ask("GET /throw HTTP/1.1\r\n" + kClose + "\r\n");
  EXPECT_TRUE(holds(answer, " 500 ") && !holds(answer, "secret")) << answer;
  EXPECT_EQ(logged.get_future().get(), "GET /throw: secret");
}

TEST(HttpServer, AProxySaysForWhomItAsks) {
  const std::string request = "GET / HTTP/1.1\r\n" + kClose +
                              "X-Forwarded-For: 10.9.9.9, 192.0.2.7\r\n"
                              "X-Forwarded-Proto: https\r\n\r\n";
  HttpOptions options;
  options.proxies = {"127.0.0.1"};
  EXPECT_TRUE(holds(RunningServer(std::move(options)).ask(request), "|192.0.2.7|secure\n"));
  EXPECT_TRUE(holds(RunningServer().ask(request), "|127.0.0.1\n"));
}

TEST(HttpServer, UnavailableAddressesAndPortsAreNamed) {
  const RunningServer server;
  HttpOptions taken;
  taken.port = server.port();
  EXPECT_THROW(HttpServer{taken}, Error);
  HttpOptions elsewhere;
  elsewhere.address = "192.0.2.1";
  try {
    const HttpServer other(elsewhere);
    ADD_FAILURE() << "listens on an address of documentation";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
  }
}

}  // namespace
}  // namespace tutti
