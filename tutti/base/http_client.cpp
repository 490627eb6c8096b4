#include "tutti/base/http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr size_t kMostHeaderBytes = 64 << 10;
constexpr std::string_view kHttpScheme = "http://";

template <typename Number>
bool read_whole_number(std::string_view text, Number& number, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

class ClientSocket {
 public:
  ClientSocket(const HttpUrl& server, double patience_seconds)
      : name_(fmt::format("{}:{}", server.host, server.port)), patience_seconds_(patience_seconds) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed =
        ::getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &hints, &found);
    if (failed != 0) fail(ErrorKind::io, "{}: {}", name_, ::gai_strerror(failed));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    int cause = 0;
    for (const addrinfo* one = found; one != nullptr && fd_ < 0; one = one->ai_next) {
      fd_ = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (fd_ < 0 || connects(*one, cause)) continue;
      ::close(fd_);
      fd_ = -1;
    }
    if (fd_ < 0) fail(ErrorKind::io, "cannot connect to {}: {}", name_, std::strerror(cause));
  }
  ~ClientSocket() { ::close(fd_); }
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // The server may answer before it has read everything: what it says then counts.
  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (count > 0) {
        text.remove_prefix(static_cast<size_t>(count));
      } else if (errno == EAGAIN) {
        await(POLLOUT);
      } else if (errno != EINTR) {
        return;
      }
    }
  }

  // 0: the server has closed.
  size_t read(char* buffer, size_t size) const {
    for (;;) {
      const ssize_t count = ::recv(fd_, buffer, size, 0);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno == EAGAIN) {
        await(POLLIN);
      } else if (errno != EINTR) {
        fail(ErrorKind::io, "{}: {}", name_, std::strerror(errno));
      }
    }
  }

 private:
  bool connects(const addrinfo& to, int& cause) const {
    if (::connect(fd_, to.ai_addr, to.ai_addrlen) == 0) return true;
    cause = errno;
    if (cause != EINPROGRESS) return false;
    await(POLLOUT);
    socklen_t size = sizeof(cause);
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &cause, &size);
    return cause == 0;
  }

  void await(short events) const {
    const double end = monotonic_seconds() + patience_seconds_;
    for (;;) {
      const double left = end - monotonic_seconds();
      pollfd poll{fd_, events, 0};
      const int ready = left <= 0 ? 0 : ::poll(&poll, 1, static_cast<int>(left * 1000) + 1);
      if (ready > 0) return;
      if (ready < 0 && errno == EINTR) continue;
      if (left <= 0 || ready < 0) {
        fail(ErrorKind::io, "{} has not answered for {:.0f} s", name_, patience_seconds_);
      }
    }
  }

  std::string name_;
  double patience_seconds_;
  int fd_ = -1;
};

}  // namespace

HttpUrl parse_http_url(const std::string& text) {
  if (starts_with(text, "https://")) {
    fail(ErrorKind::unsupported, "{}: TLS is not supported; ask the server itself by http://",
         text);
  }
  if (!starts_with(text, kHttpScheme)) {
    fail(ErrorKind::usage, "'{}' is not a URL; write one such as http://127.0.0.1:8000", text);
  }
  HttpUrl url;
  const std::string rest = text.substr(kHttpScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string host = rest.substr(0, slash);
  url.path = rest.substr(slash);
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  if (has_port) {
    if (!read_whole_number(std::string_view(host).substr(colon + 1), url.port) || url.port < 1 ||
        url.port > 65535) {
      fail(ErrorKind::usage, "'{}': its port is not a number of 1 to 65535", text);
    }
    host.resize(colon);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) fail(ErrorKind::usage, "'{}' names no host", text);
  url.host = host;
  return url;
}

HttpAnswer http_ask(const HttpUrl& server, const HttpAsk& ask,
                    const std::function<void(std::string_view)>& take) {
  const ClientSocket socket(server, ask.patience_seconds);
  const bool is_v6 = server.host.find(':') != std::string::npos;
  std::string request = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n",
                                    ask.method, server.path, ask.path,
                                    is_v6 ? "[" + server.host + "]" : server.host, server.port);
  for (const auto& [name, value] : ask.headers) request += fmt::format("{}: {}\r\n", name, value);
  if (!ask.body.empty()) request += fmt::format("Content-Length: {}\r\n", ask.body.size());
  socket.send(request + "\r\n" + ask.body);
  HttpAnswerReader reader(take);
  char buffer[16 << 10];
  while (!reader.is_whole()) {
    const size_t count = socket.read(buffer, sizeof(buffer));
    if (count == 0) {
      reader.end();
    } else {
      reader.add({buffer, count});
    }
  }
  return std::move(reader.answer());
}

void HttpAnswerReader::add(std::string_view bytes) {
  pending_ += bytes;
  while (step()) {
  }
}

void HttpAnswerReader::end() {
  if (state_ == State::unsized) state_ = State::whole;
  if (state_ == State::whole) return;
  fail(ErrorKind::io, "the server closed the connection before its answer was whole");
}

// One part of what is pending; false: more bytes are needed, or none any more.
bool HttpAnswerReader::step() {
  std::string line;
  switch (state_) {
    case State::header: return read_header();
    case State::unsized: give(pending_.size()); return false;
    case State::sized:
    case State::chunk:
      if (pending_.empty() && left_ > 0) return false;
      give(std::min(left_, pending_.size()));
      if (left_ > 0) return false;
      state_ = state_ == State::sized ? State::whole : State::chunk_end;
      return true;
    case State::chunk_size:
      if (!read_line(line)) return false;
      if (!read_whole_number(trim(line.substr(0, line.find(';'))), left_, 16)) {
        fail(ErrorKind::corrupt, "the answer is not HTTP: '{}' is not the size of a chunk",
             printable(line));
      }
      state_ = left_ == 0 ? State::trailer : State::chunk;
      return true;
    case State::chunk_end:
      if (!read_line(line)) return false;
      state_ = State::chunk_size;
      return true;
    case State::trailer:
      if (!read_line(line)) return false;
      if (line.empty()) state_ = State::whole;
      return true;
    case State::whole: return false;
  }
  return false;
}

bool HttpAnswerReader::read_line(std::string& line) {
  const size_t end = pending_.find("\r\n");
  if (end == std::string::npos) return false;
  line = pending_.substr(0, end);
  pending_.erase(0, end + 2);
  return true;
}

bool HttpAnswerReader::read_header() {
  const size_t end = pending_.find("\r\n\r\n");
  if (end == std::string::npos && pending_.size() <= kMostHeaderBytes) return false;
  const std::string header = pending_.substr(0, end);
  const auto lines = split(header, '\n');
  const auto words = split(lines.front(), ' ');
  if (end == std::string::npos || !starts_with(header, "HTTP/1.") || words.size() < 2 ||
      !read_whole_number(trim(words[1]), answer_.status)) {
    fail(ErrorKind::corrupt, "the answer is not HTTP: '{}'", printable(lines.front()));
  }
  pending_.erase(0, end + 4);
  if (answer_.status == 100) return true;  // "Continue": the answer follows
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = std::min(lines[i].find(':'), lines[i].size());
    std::string name(lines[i].substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer_.headers[name] =
        colon < lines[i].size() ? std::string(trim(lines[i].substr(colon + 1))) : "";
  }
  const auto size = answer_.headers.find("content-length");
  if (answer_.headers["transfer-encoding"] == "chunked") {
    state_ = State::chunk_size;
  } else if (size != answer_.headers.end()) {
    if (!read_whole_number(size->second, left_)) {
      fail(ErrorKind::corrupt, "the answer is not HTTP: Content-Length '{}'",
           printable(size->second));
    }
    state_ = State::sized;
  } else {
    state_ = answer_.status == 204 || answer_.status == 304 ? State::whole : State::unsized;
  }
  return true;
}

void HttpAnswerReader::give(size_t bytes) {
  const std::string_view piece = std::string_view(pending_).substr(0, bytes);
  if (take_ && answer_.status == 200) {
    if (!piece.empty()) take_(piece);
  } else {
    answer_.body += piece;
  }
  if (state_ != State::unsized) left_ -= bytes;
  pending_.erase(0, bytes);
}

}  // namespace tutti
