#include "tutti/base/http_reply.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/testing/http_exchange.h"

namespace tutti {
namespace {

using http_testing::holds;
using http_testing::HttpClient;
using http_testing::kClose;
using http_testing::kPatienceSeconds;
using http_testing::RunningServer;

// Hands the replies of its requests to the test; "/now" is answered at once.
class Deferred {
 public:
  explicit Deferred(size_t buffer_bytes = 1 << 20) : buffer_bytes_(buffer_bytes) {}

  HttpResponse operator()(const HttpRequest& request) {
    HttpResponse response;
    response.body = "now\n";
    if (request.path == "/now") return response;
    response.later = std::make_shared<HttpReply>(buffer_bytes_);
    const std::scoped_lock lock(mutex_);
    replies_.push_back(response.later);
    return response;
  }
  std::shared_ptr<HttpReply> reply(size_t index) {
    for (const double end = monotonic_seconds() + kPatienceSeconds; monotonic_seconds() < end;) {
      {
        const std::scoped_lock lock(mutex_);
        if (index < replies_.size()) return replies_[index];
      }
      sleep_seconds(0.002);
    }
    fail(ErrorKind::io, "no request came");
  }

 private:
  size_t buffer_bytes_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpReply>> replies_;
};

HttpOptions options_of(Deferred& deferred) {
  HttpOptions options;
  options.limits.workers = 1;
  options.handler = std::ref(deferred);
  return options;
}

HttpResponse head_of(int status = 200) {
  HttpResponse head;
  head.status = status;
  head.content_type = "text/event-stream";
  head.headers.emplace_back("X-C", "c");
  return head;
}

const std::string kAsk = "GET /later HTTP/1.1\r\n" + kClose + "\r\n";

TEST(HttpReply, PiecesComeAsTheyAreWritten) {
  Deferred deferred;
  const RunningServer server(options_of(deferred));
  const HttpClient client(server.port());
  client.send(kAsk);
  const auto reply = deferred.reply(0);
  reply->begin(head_of(201));
  const std::string head = client.read("\r\n\r\n");
  EXPECT_TRUE(holds(head, "HTTP/1.1 201 ") && holds(head, "Transfer-Encoding: chunked\r\n") &&
              holds(head, "Content-Type: text/event-stream\r\n") && holds(head, "X-C: c\r\n"))
      << head;
  EXPECT_TRUE(reply->write("first"));
  EXPECT_EQ(client.read("\r\nfirst\r\n"), "5\r\nfirst\r\n");
  EXPECT_TRUE(reply->write("a piece of more than 15"));
  EXPECT_EQ(client.read("15\r\n"), "17\r\na piece of more than 15\r\n");
  reply->finish();
  EXPECT_EQ(client.read(), "0\r\n\r\n");
  EXPECT_FALSE(reply->write("x")) << "nothing takes it";
}

TEST(HttpReply, AWholeAnswerComesLater) {
  Deferred deferred;
  const RunningServer server(options_of(deferred));
  const HttpClient client(server.port());
  client.send(kAsk);
  const auto reply = deferred.reply(0);
  // The only worker is free meanwhile.
  EXPECT_TRUE(holds(server.ask("GET /now HTTP/1.1\r\n" + kClose + "\r\n"), "now\n"));
  EXPECT_EQ(server.server().unanswered_requests(), 1U);
  HttpResponse response = head_of(404);
  response.body = "later\n";
  reply->answer(response);
  const std::string answer = client.read();
  EXPECT_TRUE(holds(answer, " 404 ") && holds(answer, "Content-Length: 6\r\n") &&
              holds(answer, "\r\n\r\nlater\n"))
      << answer;
  EXPECT_EQ(server.server().unanswered_requests(), 0U);
}

TEST(HttpReply, AConnectionContinuesAfterIt) {
  Deferred deferred;
  const RunningServer server(options_of(deferred));
  const HttpClient client(server.port());
  client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
  auto reply = deferred.reply(0);
  reply->begin(head_of());
  reply->write("one");
  reply->finish();
  EXPECT_TRUE(holds(client.read("\r\n0\r\n\r\n"), "3\r\none\r\n0\r\n\r\n"));
  client.send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET /now HTTP/1.1\r\n" + kClose + "\r\n");
  reply = deferred.reply(1);
  HttpResponse two;
  two.body = "two\n";
  reply->answer(two);
  const std::string rest = client.read();
  EXPECT_TRUE(holds(rest, "two\nHTTP/1.1 200 OK") && holds(rest, "now\n")) << rest;
}

TEST(HttpReply, AReplyMayBeReadyBeforeItIsReturned) {
  HttpOptions options;
  options.handler = [](const HttpRequest&) {
    HttpResponse response;
    response.later = std::make_shared<HttpReply>();
    response.later->begin(head_of());
    response.later->write("all");
    response.later->finish();
    return response;
  };
  const RunningServer server(std::move(options));
  EXPECT_TRUE(holds(server.ask(kAsk), "\r\n\r\n3\r\nall\r\n0\r\n\r\n"));
  const std::string head = server.ask("HEAD / HTTP/1.1\r\n" + kClose + "\r\n");
  EXPECT_TRUE(holds(head, "200 OK") && !holds(head, "all")) << head;
  // HTTP/1.0 knows no chunks.
  const std::string old = server.ask("GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(holds(old, "\r\n\r\nall") && !holds(old, "chunked")) << old;
}

TEST(HttpReply, SaysWhenTheClientHasLeft) {
  Deferred deferred;
  const RunningServer server(options_of(deferred));
  std::promise<void> gone;
  std::shared_ptr<HttpReply> reply;
  {
    const HttpClient client(server.port());
    client.send(kAsk);
    reply = deferred.reply(0);
    reply->on_disconnect([&] { gone.set_value(); });
    reply->begin(head_of());
    reply->write("x");
    EXPECT_TRUE(holds(client.read("1\r\nx\r\n"), "200 OK"));
  }
  gone.get_future().wait();  // nothing is written meanwhile
  EXPECT_TRUE(reply->is_disconnected());
  EXPECT_FALSE(reply->write("y"));
  reply->finish();
  bool at_once = false;
  reply->on_disconnect([&] { at_once = true; });
  EXPECT_TRUE(at_once);
}

TEST(HttpReply, ClientsThatDoNotReadAreDisconnected) {
  Deferred deferred(100'000);
  const RunningServer server(options_of(deferred));
  const HttpClient client(server.port());
  client.send(kAsk);
  const auto reply = deferred.reply(0);
  std::promise<void> gone;
  reply->on_disconnect([&] { gone.set_value(); });
  reply->begin(head_of());
  const std::string piece(10'000, 'x');
  size_t taken = 0;
  for (const double end = monotonic_seconds() + kPatienceSeconds;
       reply->write(piece) && monotonic_seconds() < end;) {
    taken += piece.size();
  }
  gone.get_future().wait();
  // What the sockets of both sides hold, and the buffer.
  EXPECT_LT(taken, size_t{64} << 20);
}

TEST(HttpReply, WhatIsMadeHasADeadline) {
  Deferred deferred(64 << 20);
  HttpOptions options = options_of(deferred);
  options.limits.answer_seconds = 0.2;
  const RunningServer server(std::move(options));
  const HttpClient client(server.port());
  client.send(kAsk);
  const auto reply = deferred.reply(0);
  std::promise<void> gone;
  reply->on_disconnect([&] { gone.set_value(); });
  reply->begin(head_of());
  EXPECT_TRUE(reply->write(std::string(16 << 20, 'x')));
  gone.get_future().wait();
}

TEST(HttpReply, AnAbortedAnswerHasNoEnd) {
  Deferred deferred;
  const RunningServer server(options_of(deferred));
  const HttpClient client(server.port());
  client.send(kAsk);
  const auto reply = deferred.reply(0);
  reply->begin(head_of());
  reply->write("x");
  EXPECT_TRUE(holds(client.read("1\r\nx\r\n"), "200 OK"));
  reply->abort();
  EXPECT_EQ(client.read(), "");
}

TEST(HttpReply, OutlivesItsServer) {
  Deferred deferred;
  std::shared_ptr<HttpReply> reply;
  bool gone = false;
  {
    const RunningServer server(options_of(deferred));
    const HttpClient client(server.port());
    client.send(kAsk);
    reply = deferred.reply(0);
    reply->begin(head_of());
    EXPECT_TRUE(holds(client.read("\r\n\r\n"), "200 OK"));
    reply->on_disconnect([&] { gone = true; });
  }
  EXPECT_TRUE(gone);
  EXPECT_FALSE(reply->write("x"));
}

}  // namespace
}  // namespace tutti
