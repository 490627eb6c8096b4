#include "tutti/base/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>

#include "tutti/base/client_address.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/http_connection.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using Tcp = boost::asio::ip::tcp;
using SocketError = boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

size_t most_connections_of(const HttpLimits& limits) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return limits.connections;
  return std::min<size_t>(limits.connections, files.rlim_cur / 2);
}

}  // namespace

std::string HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

// Everything is of the thread of run(), but answer() and refusal(), which change nothing.
struct HttpServer::State final : HttpConnection::Owner {
  ~State() override {
    workers.join();
    for (const auto& connection : connections) connection->abandon();
  }
  explicit State(HttpOptions given)
      : options(std::move(given)),
        most_connections(most_connections_of(options.limits)),
        workers(std::max<size_t>(1, options.limits.workers)) {}

  const HttpLimits& limits() const override { return options.limits; }
  void handle(std::shared_ptr<HttpConnection> connection, HttpRequest request) override;
  HttpResponse refusal(int status, const std::string& text) const override;
  void forget(const std::shared_ptr<HttpConnection>& connection) override;
  void count_unanswered(int change) override { unanswered += change; }
  void run_soon(std::function<void()> task) override {
    boost::asio::post(context, std::move(task));
  }

  void listen();
  void accept();
  void take(Tcp::socket socket);
  bool make_way(const std::string& network);
  void identify(const std::string& peer, HttpRequest& request);
  bool is_busy() const { return pending >= limits().workers + limits().queued_requests; }
  void dispatch(std::shared_ptr<HttpConnection> connection, HttpRequest request);
  void wake();
  HttpResponse answer(const HttpRequest& request) const;

  HttpOptions options;
  size_t most_connections;
  boost::asio::io_context context{1};
  Tcp::acceptor acceptor{context};
  boost::asio::steady_timer pause{context};
  std::vector<std::shared_ptr<HttpConnection>> connections;
  std::map<std::string, size_t> per_network;
  std::atomic<size_t> open = 0;     // connections.size(), for any thread
  std::atomic<int> unanswered = 0;  // requests, likewise
  size_t pending = 0;               // requests that the workers have
  struct Held {
    std::shared_ptr<HttpConnection> connection;
    HttpRequest request;
    double since = 0;  // monotonic_seconds()
  };
  std::vector<Held> held;
  size_t wakes = 0;
  bool warned_about_proxy = false;
  boost::asio::thread_pool workers;
};

void HttpServer::State::listen() {
  SocketError error;
  Tcp::resolver resolver(context);
  const auto found = resolver.resolve(options.address, std::to_string(options.port),
                                      Tcp::resolver::passive, error);
  if (error || found.empty()) {
    fail(ErrorKind::usage, "address '{}' is not an address of this machine: {}", options.address,
         error.message());
  }
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(Tcp::acceptor::max_listen_connections, error);
  if (!error) return;
  if (error == boost::system::errc::address_not_available) {
    fail(ErrorKind::usage, "address '{}' is not an address of this machine", options.address);
  }
  const bool denied = error == boost::system::errc::permission_denied;
  fail(denied ? ErrorKind::permission : ErrorKind::io,
       "cannot listen on {} port {}: {}; choose another port", options.address, options.port,
       error.message());
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](SocketError error, Tcp::socket socket) {
    if (!error) take(std::move(socket));
    if (!error || error == boost::system::errc::connection_aborted) return accept();
    // Files or memory are short.
    make_way("");
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](SocketError ended) {
      if (!ended) accept();
    });
  });
}

void HttpServer::State::take(Tcp::socket socket) {
  SocketError error;
  const Tcp::endpoint from = socket.remote_endpoint(error);
  if (error) return;
  const std::string peer = plain_address(from.address().to_string());
  const std::string network = network_of(peer);
  const auto count = per_network.find(network);
  const bool is_full = !has(options.proxies, peer) && count != per_network.end() &&
                       count->second >= options.limits.connections_per_client;
  if (is_full && !make_way(network)) return;
  if (connections.size() >= most_connections && !make_way("")) return;
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  socket.set_option(Tcp::no_delay(true), error);
  const auto connection = std::make_shared<HttpConnection>(*this, std::move(socket), peer);
  connections.push_back(connection);
  open = connections.size();
  ++per_network[network];
  connection->start();
}

// Closes the connection that has waited longest for its client: of that network, or, where none is
// named, of the network with the most. False: all of them wait for handlers.
bool HttpServer::State::make_way(const std::string& network) {
  std::shared_ptr<HttpConnection> slowest;
  size_t most = 0;
  for (const auto& connection : connections) {
    if (!connection->awaits_client()) continue;
    const std::string own = network_of(connection->peer());
    if (!network.empty() && own != network) continue;
    const size_t count = per_network.at(own);
    const bool is_slower = !slowest || connection->since() < slowest->since();
    if (slowest && (count < most || (count == most && !is_slower))) continue;
    slowest = connection;
    most = count;
  }
  if (!slowest) return false;
  slowest->close();
  forget(slowest);
  return true;
}

void HttpServer::State::forget(const std::shared_ptr<HttpConnection>& connection) {
  const auto at = std::find(connections.begin(), connections.end(), connection);
  if (at == connections.end()) return;
  const auto count = per_network.find(network_of(connection->peer()));
  if (--count->second == 0) per_network.erase(count);
  std::swap(*at, connections.back());
  connections.pop_back();
  open = connections.size();
}

void HttpServer::State::handle(std::shared_ptr<HttpConnection> connection, HttpRequest request) {
  identify(connection->peer(), request);
  if (is_busy()) {
    HttpResponse response = refusal(503, "the server is busy; try again in a moment");
    response.headers.emplace_back("Retry-After", "5");
    connection->send_last(std::move(response));
    return;
  }
  dispatch(std::move(connection), std::move(request));
}

void HttpServer::State::dispatch(std::shared_ptr<HttpConnection> connection, HttpRequest request) {
  ++pending;
  const double since = monotonic_seconds() - request.held_seconds;
  // The connection is handed on and back: its last owner is always the thread of run().
  boost::asio::post(workers, [this, since, seen = wakes, connection = std::move(connection),
                              request = std::move(request)]() mutable {
    HttpResponse response = answer(request);
    boost::asio::post(
        context, [this, since, seen, connection = std::move(connection),
                  request = std::move(request), response = std::move(response)]() mutable {
          --pending;
          if (response.later) return connection->send_later(std::move(response.later));
          if (!response.hold) return connection->send(std::move(response));
          if (seen != wakes && !is_busy()) {  // what it waits for may have come meanwhile
            request.held_seconds = monotonic_seconds() - since;
            return dispatch(std::move(connection), std::move(request));
          }
          connection->hold();
          held.push_back({std::move(connection), std::move(request), since});
        });
  });
}

void HttpServer::State::wake() {
  ++wakes;
  std::vector<Held> all = std::exchange(held, {});
  for (Held& each : all) {
    if (!each.connection->is_open()) continue;
    if (is_busy()) {
      held.push_back(std::move(each));
      continue;
    }
    each.request.held_seconds = monotonic_seconds() - each.since;
    dispatch(std::move(each.connection), std::move(each.request));
  }
}

void HttpServer::State::identify(const std::string& peer, HttpRequest& request) {
  const std::string forwarded = request.header("x-forwarded-for");
  request.client = client_of(peer, options.proxies, forwarded);
  if (has(options.proxies, peer)) {
    const std::string protocols = request.header("x-forwarded-proto");
    request.secure = trim(split(protocols, ',').back()) == "https";
  } else if (!forwarded.empty() && !warned_about_proxy) {
    warned_about_proxy = true;
    options.log(fmt::format(
        "requests come through a proxy at {} that is not named as one: its clients share their "
        "limits",
        peer));
  }
}

HttpResponse HttpServer::State::answer(const HttpRequest& request) const {
  std::string what;
  try {
    return options.handler(request);
  } catch (const std::exception& exception) {
    what = exception.what();
  } catch (...) {
    what = "not a std::exception";
  }
  options.log(fmt::format("{} {}: {}", request.method, printable(request.path), what));
  return refusal(500, "the server could not do it");
}

HttpResponse HttpServer::State::refusal(int status, const std::string& text) const {
  if (options.refusal) return options.refusal(status, text);
  HttpResponse response;
  response.status = status;
  response.body = text + "\n";
  return response;
}

HttpServer::HttpServer(HttpOptions options) : state_(std::make_unique<State>(std::move(options))) {
  if (!state_->options.log) state_->options.log = [](const std::string&) {};
  state_->listen();
}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

void HttpServer::run() {
  state_->accept();
  for (;;) {
    try {
      state_->context.run();
      return;
    } catch (const std::exception& exception) {
      state_->options.log(fmt::format("a connection failed: {}", exception.what()));
    }
  }
}

size_t HttpServer::open_connections() const { return state_->open; }

size_t HttpServer::unanswered_requests() const { return static_cast<size_t>(state_->unanswered); }

void HttpServer::stop() { state_->context.stop(); }

void HttpServer::wake() {
  boost::asio::post(state_->context, [state = state_.get()] { state->wake(); });
}

}  // namespace tutti
