#include "tutti/object/testing/fault_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/object/uri.h"

namespace tutti::object {
namespace {

// What has been read beyond a request belongs to the next.
bool read_more(int connection, std::string& buffer) {
  char part[1 << 16];
  const ssize_t count = ::recv(connection, part, sizeof part, 0);
  if (count <= 0) return false;
  buffer.append(part, static_cast<size_t>(count));
  return true;
}

struct Received {
  Request request;
  std::string body;
};

void parse_target(const std::string& target, Request& request) {
  const size_t question = target.find('?');
  request.path = percent_decode(target.substr(0, question));
  if (question == std::string::npos) return;
  for (const std::string_view pair : split(std::string_view(target).substr(question + 1), '&')) {
    const size_t equals = pair.find('=');
    request.query.emplace_back(
        percent_decode(pair.substr(0, equals)),
        equals == std::string_view::npos ? "" : percent_decode(pair.substr(equals + 1)));
  }
}

std::optional<Received> read_request(int connection, std::string& buffer) {
  size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (!read_more(connection, buffer)) return std::nullopt;
  }
  Received received;
  Request& request = received.request;
  const std::string head = buffer.substr(0, end);
  buffer.erase(0, end + 4);
  bool first = true;
  for (const std::string_view line : split(head, '\n')) {
    const std::string text(trim(line));
    if (first) {
      const auto words = split(text, ' ');
      request.method = words[0];
      parse_target(std::string(words[1]), request);
      first = false;
      continue;
    }
    const size_t colon = text.find(':');
    std::string name = text.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers[name] = trim(std::string_view(text).substr(colon + 1));
  }
  request.host = request.headers["host"];
  size_t length = 0;
  if (request.headers.count("content-length") > 0) {
    length = std::stoul(request.headers["content-length"]);
  }
  // What libcurl adds is not signed.
  for (const char* name : {"host", "accept", "content-length", "user-agent"}) {
    request.headers.erase(name);
  }
  while (buffer.size() < length) {
    if (!read_more(connection, buffer)) return std::nullopt;
  }
  received.body = buffer.substr(0, length);
  buffer.erase(0, length);
  return received;
}

bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

FaultServer::FaultServer(std::shared_ptr<Transport> store,
                         std::function<NetworkFault(int64_t)> fault_of, double wait_seconds)
    : store_(std::move(store)), fault_of_(std::move(fault_of)), wait_seconds_(wait_seconds) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int bound = ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  TUTTI_CHECK(bound == 0 && ::listen(listener_, 64) == 0, "no port of this machine is free");
  socklen_t size = sizeof address;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

FaultServer::~FaultServer() {
  stop_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

std::string FaultServer::host() const { return fmt::format("127.0.0.1:{}", port_); }

void FaultServer::accept_all() {
  while (true) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    const std::lock_guard lock(mutex_);
    connections_.push_back(connection);
    threads_.emplace_back([this, connection] { serve(connection); });
  }
}

void FaultServer::serve(int connection) {
  std::string buffer;
  bool alive = true;
  while (alive) {
    std::optional<Received> received = read_request(connection, buffer);
    if (!received) break;
    received->request.body = received->body;
    const NetworkFault fault = fault_of_(requests_++);
    const double until = monotonic_seconds() + (fault == NetworkFault::wait ? wait_seconds_ : 0);
    while (monotonic_seconds() < until && !stop_) sleep_seconds(0.005);
    if (fault == NetworkFault::reset) {
      const linger at_once = {1, 0};
      ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      break;
    }
    const Response response = store_->send(received->request);
    std::string head = fmt::format("HTTP/1.1 {} X\r\n", response.status);
    const bool is_head = received->request.method == "HEAD";
    for (const auto& [name, value] : response.headers) {
      if (name != "content-length" || is_head) head += fmt::format("{}: {}\r\n", name, value);
    }
    if (!is_head && response.status != 204) {
      head += fmt::format("content-length: {}\r\n", response.body.size());
    }
    alive = send_all(connection, head + "\r\n");
    if (is_head || response.status == 204) continue;
    std::string_view body = response.body;
    if (fault == NetworkFault::truncate) {
      body = body.substr(0, body.size() / 2);
      alive = false;
    }
    alive = send_all(connection, body) && alive;
  }
  const std::lock_guard lock(mutex_);
  std::erase(connections_, connection);
  ::close(connection);
}

}  // namespace tutti::object
