#include "tutti/base/http_client.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/testing/http_exchange.h"

namespace tutti {
namespace {

TEST(HttpClientUrl, PartsAreFound) {
  const HttpUrl plain = parse_http_url("http://localhost");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, 80);
  EXPECT_EQ(plain.path, "");
  const HttpUrl full = parse_http_url("http://[::1]:8000/v1/");
  EXPECT_EQ(full.host, "::1");
  EXPECT_EQ(full.port, 8000);
  EXPECT_EQ(full.path, "/v1");
  for (const char* text : {"", "localhost:8000", "http://", "http://:80", "http://h:0",
                           "http://h:x", "http://h:65536", "https://h"}) {
    EXPECT_THROW(parse_http_url(text), Error) << text;
  }
}

std::string piecewise(const std::string& answer, size_t step, HttpAnswer* head = nullptr) {
  std::string taken;
  HttpAnswerReader reader([&](std::string_view piece) { taken += piece; });
  for (size_t at = 0; at < answer.size(); at += step) {
    EXPECT_FALSE(reader.is_whole());
    reader.add(std::string_view(answer).substr(at, step));
  }
  if (!reader.is_whole()) reader.end();
  if (head != nullptr) *head = reader.answer();
  return taken;
}

TEST(HttpClientReader, AnswersAreTakenApartHoweverTheyArrive) {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5\r\nhello\r\n"
      "A;x=y\r\n, wor\r\nld!\r\n0\r\n\r\n";
  const std::string sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  const std::string unsized = "HTTP/1.0 200 OK\r\n\r\nhello";
  for (size_t step = 1; step < 9; ++step) {
    HttpAnswer head;
    EXPECT_EQ(piecewise(chunked, step, &head), "hello, wor\r\nld!");
    EXPECT_EQ(head.headers["x-a"], "b");
    EXPECT_EQ(piecewise(sized, step), "hello");
    EXPECT_EQ(piecewise(unsized, step), "hello");
  }
  HttpAnswer refused;
  EXPECT_EQ(piecewise("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", 3, &refused), "");
  EXPECT_EQ(refused.body, "no");
  EXPECT_EQ(piecewise("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 100), "");
}

TEST(HttpClientReader, WhatIsNoAnswerIsRefused) {
  for (const char* text : {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 what\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"}) {
    HttpAnswerReader reader;
    EXPECT_THROW(reader.add(text), Error) << text;
  }
  HttpAnswerReader cut;
  cut.add("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
  EXPECT_THROW(cut.end(), Error);
}

TEST(HttpClientAsk, ExchangesWithAServer) {
  const http_testing::RunningServer server;
  const HttpUrl url{"127.0.0.1", server.port(), ""};
  HttpAsk ask;
  ask.method = "POST";
  ask.path = "/a?b=c";
  ask.headers = {{"X-A", "1"}};
  ask.body = "body";
  const HttpAnswer answer = http_ask(url, ask);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST /a|b=c|1|body|127.0.0.1\n");
  std::string pieces;
  http_ask(url, ask, [&](std::string_view piece) { pieces += piece; });
  EXPECT_EQ(pieces, answer.body);
}

TEST(HttpClientAsk, MissingServersAreNamed) {
  int port = 0;
  {
    const http_testing::RunningServer server;
    port = server.port();
  }
  try {
    http_ask({"127.0.0.1", port, ""}, {});
    ADD_FAILURE() << "something answers";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_NE(std::string(error.what()).find(std::to_string(port)), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti
