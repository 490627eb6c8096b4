// A server in this process and a client in plain bytes, for tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/http_server.h"

namespace tutti::http_testing {

inline constexpr double kPatienceSeconds = 60;

// A client in plain bytes.
class HttpClient {
 public:
  explicit HttpClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    const timeval patience{static_cast<time_t>(kPatienceSeconds), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~HttpClient() { ::close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool send(const std::string& text) const {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Until it holds `text`, or all that comes until the server closes.
  std::string read(const std::string& text = "\n\n\n") const {
    std::string got;
    char buffer[4096];
    while (got.find(text) == std::string::npos) {
      const ssize_t count = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      got.append(buffer, static_cast<size_t>(count));
    }
    return got;
  }
  // Sends `text` again and again until the server has closed.
  bool is_cut_off(const std::string& text) const {
    for (const double end = monotonic_seconds() + kPatienceSeconds; monotonic_seconds() < end;) {
      char byte = 0;
      const ssize_t count = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
      if (count == 0 || !send(text)) return true;
      sleep_seconds(0.02);
    }
    return false;
  }

 private:
  int fd_;
};

// Answers with what it was asked; "/throw" throws.
class RunningServer {
 public:
  explicit RunningServer(HttpOptions options = {}) {
    if (!options.handler) {
      options.handler = [](const HttpRequest& request) {
        if (request.path == "/throw") throw std::runtime_error("secret");
        HttpResponse response;
        response.body = request.method + " " + request.path + "|" + request.query + "|" +
                        request.header("x-a") + "|" + request.body + "|" + request.client +
                        (request.secure ? "|secure" : "") + "\n";
        response.headers.emplace_back("X-B", "b");
        return response;
      };
    }
    server_ = std::make_unique<HttpServer>(std::move(options));
    thread_ = std::thread([this] { server_->run(); });
  }
  ~RunningServer() {
    server_->stop();
    thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  int port() const { return server_->port(); }
  HttpServer& server() const { return *server_; }
  void wake() const { server_->wake(); }

  std::string ask(const std::string& request) const {
    const HttpClient client(port());
    EXPECT_TRUE(client.send(request));
    return client.read();
  }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline const std::string kClose = "Host: h\r\nConnection: close\r\n";

}  // namespace tutti::http_testing
