#include "tutti/comm/rendezvous/tcp_store.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/client_address.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/comm/rendezvous/message.h"

namespace tutti::comm {
namespace {

constexpr const char* kGreeting = "tutti store 1";
constexpr double kHandshakeSeconds = 10;
constexpr double kLookSeconds = 0.2;  // between looks at whether the server closes
constexpr double kReplySeconds = 10;  // that an answer may be late
constexpr double kTurnSeconds = 0.2;  // for which one thread may keep the connection
constexpr double kPauseSeconds = 1e-3;
constexpr uint32_t kMostHelloBytes = 64 << 10;  // of an unauthenticated client

std::string ports_text(const std::vector<int>& ports) {
  std::vector<std::string> numbers;
  numbers.reserve(ports.size());
  for (const int port : ports) numbers.push_back(std::to_string(port));
  return join(numbers, ", ");
}

// The proofs of client and server differ, so neither can be reflected.
std::vector<std::string> proven(const char* who, const std::string& server_token,
                                const std::string& client_token, const std::string& session,
                                const std::string& rank) {
  return {who, server_token, client_token, session, rank};
}

class Client : public Store {
 public:
  Client(int socket, std::string where) : socket_(socket), where_(std::move(where)) {}
  ~Client() override { close(socket_); }

  void set(const std::string& key, const std::string& value) override {
    ask({"set", key, value}, 0);
  }
  // In turns: another thread of this rank may have to report a failure meanwhile.
  std::string get(const std::string& key, double timeout_seconds) override {
    const double end = monotonic_seconds() + timeout_seconds;
    while (true) {
      const double left = std::max(0.0, end - monotonic_seconds());
      const double turn = std::min(left, kTurnSeconds);
      const std::vector<std::string> answer = ask({"get", key, fmt::format("{}", turn)}, turn);
      if (answer.size() == 2) return answer[1];
      if (turn == left) break;
      sleep_seconds(kPauseSeconds);
    }
    fail(ErrorKind::peer, "store at {}: no {} within {}", where_, key,
         format_seconds(timeout_seconds));
  }
  std::vector<std::string> list(const std::string& prefix) override {
    std::vector<std::string> answer = ask({"list", prefix}, 0);
    answer.erase(answer.begin());
    return answer;
  }

 private:
  std::vector<std::string> ask(const std::vector<std::string>& question, double timeout_seconds) {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) {
      try {
        set_timeout(socket_, timeout_seconds + kReplySeconds);
        send_message(socket_, question);
        std::vector<std::string> answer = receive_message(socket_);
        if (!answer.empty()) return answer;
        lost_ = "an empty answer";
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::usage) throw;
        lost_ = error.what();
      }
      // What still comes would be taken for the answer to the next question.
      shutdown(socket_, SHUT_RDWR);
    }
    fail(ErrorKind::peer, "store at {}, asked for {} {}: {}; rank 0 or the launcher has ended",
         where_, question[0], question[1], lost_);
  }

  std::mutex mutex_;
  int socket_;
  std::string where_;
  std::string lost_;  // why nothing is asked any more
};

// Connected, or -1 and why not.
int try_connect(const std::string& address, int port, std::string& why) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) {
    why = fmt::format("{}: {}", address, gai_strerror(failed));
    return -1;
  }
  int connected = -1;
  for (const addrinfo* at = found; at != nullptr && connected < 0; at = at->ai_next) {
    const int trial = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (trial < 0) continue;
    set_timeout(trial, kHandshakeSeconds);
    if (connect(trial, at->ai_addr, at->ai_addrlen) == 0) {
      connected = trial;
    } else {
      why = fmt::format("port {}: {}", port, std::strerror(errno));
      close(trial);
    }
  }
  freeaddrinfo(found);
  return connected;
}

// Throws permission when the secrets differ; false, and why, when this is not the store we seek.
bool shake_hands(int socket, const std::string& session, const std::string& secret, int64_t rank,
                 std::string& why) {
  const std::string token = random_token();
  const std::string rank_text = std::to_string(rank);
  try {
    const std::vector<std::string> greeting = receive_message(socket);
    if (greeting.size() != 2 || greeting[0] != kGreeting) {
      why = "something else answers there";
      return false;
    }
    send_message(socket, {token, session, rank_text,
                          proof(secret, proven("client", greeting[1], token, session, rank_text))});
    const std::vector<std::string> answer = receive_message(socket);
    if (answer.size() == 2 && answer[0] == "welcome") {
      if (same_proof(answer[1],
                     proof(secret, proven("server", greeting[1], token, session, rank_text)))) {
        return true;
      }
      fail(ErrorKind::permission, "the store rejects the secret of rank {}: TUTTI_SECRET differs",
           rank);
    }
    why = answer.size() == 2 ? answer[1] : "an answer that makes no sense";
    if (answer.size() == 2 && answer[0] == "secret") {
      fail(ErrorKind::permission, "the store refused rank {}: {}", rank, why);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::permission) throw;
    why = error.what();
  }
  return false;
}

}  // namespace

TcpStoreServer::TcpStoreServer(const std::string& address, const std::vector<int>& ports,
                               std::string session, std::string secret)
    : session_(std::move(session)), secret_(std::move(secret)), values_(make_memory_store()) {
  const bool loopback = is_loopback(address);
  std::string why;
  for (const int port : ports) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TUTTI_CHECK(listener_ >= 0, "socket: {}", std::strerror(errno));
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    socklen_t length = sizeof at;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&at), length) == 0 &&
        listen(listener_, SOMAXCONN) == 0) {
      getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length);
      port_ = ntohs(at.sin_port);
      break;
    }
    why = std::strerror(errno);
    close(listener_);
    listener_ = -1;
  }
  if (listener_ < 0) {
    fail(ErrorKind::io, "rank 0 cannot serve the store at port {}: {}; set another MASTER_PORT",
         ports_text(ports), why);
  }
  thread_ = std::thread([this] { accept_all(); });
}

TcpStoreServer::~TcpStoreServer() {
  // Others may still be asking why this rank ends.
  const double end = monotonic_seconds() + 1;
  while (clients_.load() > 0 && monotonic_seconds() < end) sleep_seconds(0.01);
  closing_.store(true);
  thread_.join();
  close(listener_);
}

void TcpStoreServer::set(const std::string& key, const std::string& value) {
  values_->set(key, value);
}
std::string TcpStoreServer::get(const std::string& key, double timeout_seconds) {
  return values_->get(key, timeout_seconds);
}
std::vector<std::string> TcpStoreServer::list(const std::string& prefix) {
  return values_->list(prefix);
}

void TcpStoreServer::accept_all() {
  while (!closing_.load()) {
    pollfd ready = {listener_, POLLIN, 0};
    const bool arrived = poll(&ready, 1, static_cast<int>(kLookSeconds * 1000)) > 0;
    connections_.remove_if([](Connection& connection) {
      if (!connection.ended.load()) return false;
      connection.thread.join();
      close(connection.socket);
      return true;
    });
    if (!arrived) continue;
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      sleep_seconds(kLookSeconds);  // such as no file descriptor is left
      continue;
    }
    tune_connection(socket);
    Connection& connection = connections_.emplace_back();
    connection.socket = socket;
    connection.thread = std::thread([this, &connection] { serve(connection); });
  }
  for (Connection& connection : connections_) {
    shutdown(connection.socket, SHUT_RDWR);
    connection.thread.join();
    close(connection.socket);
  }
}

void TcpStoreServer::refuse(int socket, const std::string& who, const std::string& why) {
  values_->set(fmt::format("refused/{}", refused_.fetch_add(1)), fmt::format("{}: {}", who, why));
  send_message(socket, {starts_with(why, "it does not know") ? "secret" : "refused", why});
}

void TcpStoreServer::serve(Connection& connection) {
  const int socket = connection.socket;
  bool is_client = false;
  try {
    set_timeout(socket, kHandshakeSeconds);
    const std::string token = random_token();
    send_message(socket, {kGreeting, token});
    const std::vector<std::string> hello = receive_message(socket, kMostHelloBytes);
    if (hello.size() != 4) {
      refuse(socket, "a stranger", "it does not speak the store's protocol");
    } else if (hello[1] != session_) {
      refuse(
          socket, "rank " + printable(hello[2]),
          fmt::format("it belongs to the run {}, the store to {}", printable(hello[1]), session_));
    } else if (!same_proof(hello[3],
                           proof(secret_, proven("client", token, hello[0], hello[1], hello[2])))) {
      refuse(socket, "rank " + printable(hello[2]),
             "it does not know the secret of rank 0: TUTTI_SECRET differs");
    } else {
      send_message(socket, {"welcome",
                            proof(secret_, proven("server", token, hello[0], hello[1], hello[2]))});
      set_timeout(socket, 0);
      clients_.fetch_add(1);
      is_client = true;
      serve_requests(socket);
    }
  } catch (const Error&) {
    // The client has gone, or is not a rank: no reply.
  }
  if (is_client) clients_.fetch_sub(1);
  connection.ended.store(true);
}

void TcpStoreServer::serve_requests(int socket) {
  while (true) {
    const std::vector<std::string> request = receive_message(socket);
    if (request.size() == 3 && request[0] == "set") {
      values_->set(request[1], request[2]);
      send_message(socket, {"done"});
    } else if (request.size() == 3 && request[0] == "get") {
      double left = 0;
      std::from_chars(request[2].data(), request[2].data() + request[2].size(), left);
      const double end = monotonic_seconds() + left;
      std::vector<std::string> answer = {"none"};
      while (answer.size() == 1 && !closing_.load()) {
        left = std::max(0.0, end - monotonic_seconds());
        try {
          answer = {"value", values_->get(request[1], std::min(left, kLookSeconds))};
        } catch (const Error&) {
          if (left == 0) break;
        }
      }
      send_message(socket, answer);
    } else if (request.size() == 2 && request[0] == "list") {
      std::vector<std::string> answer = values_->list(request[1]);
      answer.insert(answer.begin(), "keys");
      send_message(socket, answer);
    } else {
      fail(ErrorKind::corrupt, "a request of {} parts", request.size());
    }
  }
}

std::shared_ptr<Store> connect_store(const std::string& address, const std::vector<int>& ports,
                                     const std::string& session, const std::string& secret,
                                     int64_t rank, double timeout_seconds) {
  const double end = monotonic_seconds() + timeout_seconds;
  std::string why;
  do {
    for (const int port : ports) {
      const int socket = try_connect(address, port, why);
      if (socket < 0) continue;
      bool is_ours = false;
      try {
        is_ours = shake_hands(socket, session, secret, rank, why);
      } catch (const Error&) {
        close(socket);
        throw;
      }
      if (is_ours) {
        tune_connection(socket);
        return std::make_shared<Client>(socket, fmt::format("{}:{}", address, port));
      }
      close(socket);
    }
    sleep_seconds(0.05);
  } while (monotonic_seconds() < end);
  fail(ErrorKind::peer,
       "rank {} found no store of this run at {}, port {}, within {} (last: {}): is rank 0 there, "
       "and are MASTER_ADDR and MASTER_PORT those of its host?",
       rank, address, ports_text(ports), format_seconds(timeout_seconds), why);
}

std::string address_towards(const std::string& address) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.c_str(), "9", &hints, &found);
  if (failed != 0) fail(ErrorKind::peer, "{}: {}", address, gai_strerror(failed));
  // Connecting a datagram socket sends nothing: the system only chooses the way.
  const int trial = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in self = {};
  socklen_t length = sizeof self;
  const bool known = trial >= 0 && connect(trial, found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(trial, reinterpret_cast<sockaddr*>(&self), &length) == 0;
  const int error = errno;
  if (trial >= 0) close(trial);
  freeaddrinfo(found);
  if (!known) fail(ErrorKind::peer, "no way to {}: {}", address, std::strerror(error));
  std::array<char, INET_ADDRSTRLEN> text;
  return inet_ntop(AF_INET, &self.sin_addr, text.data(), text.size());
}

}  // namespace tutti::comm
