#include "tutti/comm/rendezvous/message.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::comm {
namespace {

// Of silence, until the other side is asked whether it is there; how often, and how many times.
constexpr int kSilentSeconds = 30;
constexpr int kAskEverySeconds = 10;
constexpr int kAsks = (kLinkLostSeconds - kSilentSeconds) / kAskEverySeconds;

void append_length(std::string& out, size_t length) {
  for (int shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<char>(length >> shift & 0xff));
  }
}

uint32_t read_length(const char* bytes) {
  uint32_t length = 0;
  for (int i = 0; i < 4; ++i) {
    length |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  }
  return length;
}

void read_exactly(int socket, char* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, to, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      fail(ErrorKind::io, "the connection was {}",
           got == 0                                  ? "closed"
           : errno == EAGAIN || errno == EWOULDBLOCK ? "silent for too long"
                                                     : std::strerror(errno));
    }
    to += got;
    bytes -= static_cast<size_t>(got);
  }
}

std::string hex(const unsigned char* bytes, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    append_length(out, part.size());
    out += part;
  }
  return out;
}

}  // namespace

void send_message(int socket, const std::vector<std::string>& parts) {
  const std::string body = joined(parts);
  if (body.size() > kMostMessageBytes) {
    fail(ErrorKind::usage, "a message of {} bytes; at most {} are taken", body.size(),
         kMostMessageBytes);
  }
  std::string message;
  append_length(message, body.size());
  message += body;
  const char* from = message.data();
  size_t left = message.size();
  while (left > 0) {
    const ssize_t sent = send(socket, from, left, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail(ErrorKind::io, "the connection was closed ({})", std::strerror(errno));
    from += sent;
    left -= static_cast<size_t>(sent);
  }
}

std::vector<std::string> receive_message(int socket, uint32_t most_bytes) {
  std::array<char, 4> length;
  read_exactly(socket, length.data(), length.size());
  const uint32_t bytes = read_length(length.data());
  if (bytes > most_bytes) fail(ErrorKind::corrupt, "a message of {} bytes", bytes);
  std::string body(bytes, '\0');
  read_exactly(socket, body.data(), bytes);
  std::vector<std::string> parts;
  size_t at = 0;
  while (at < body.size()) {
    const size_t left = body.size() - at;
    const uint32_t part = left >= 4 ? read_length(&body[at]) : 0;
    if (left < 4 || part > left - 4) fail(ErrorKind::corrupt, "a message with a wrong length");
    parts.push_back(body.substr(at + 4, part));
    at += 4 + part;
  }
  return parts;
}

void set_timeout(int socket, double seconds) {
  timeval timeout = {};
  timeout.tv_sec = static_cast<time_t>(seconds);
  timeout.tv_usec = static_cast<suseconds_t>(std::fmod(seconds, 1.0) * 1e6);
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

void tune_connection(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  end_when_lost(socket);
}

void end_when_lost(int socket) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kLinkLostSeconds * 1000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kSilentSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kAskEverySeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kAsks);
}

void end_all_when_lost() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string number = entry.path().filename();
    int socket = -1;
    std::from_chars(number.data(), number.data() + number.size(), socket);
    sockaddr_storage peer = {};
    socklen_t length = sizeof peer;
    if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) end_when_lost(socket);
  }
}

std::string random_token() {
  std::array<unsigned char, 16> bytes;
  TUTTI_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
              "getrandom: {}", std::strerror(errno));
  return hex(bytes.data(), bytes.size());
}

std::string proof(const std::string& secret, const std::vector<std::string>& parts) {
  const std::string text = joined(parts);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   digest.data(), &length);
  TUTTI_CHECK(done != nullptr, "HMAC failed");
  return hex(digest.data(), length);
}

bool same_proof(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tutti::comm
