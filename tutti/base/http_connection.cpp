#include "tutti/base/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr double kLingerSeconds = 2;
constexpr size_t kMostLingerBytes = 16 << 20;
constexpr size_t kReadBytes = 16 << 10;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

// Boost's views are not std's, and differ between its versions.
template <typename View>
std::string string_of(const View& view) {
  return std::string(view.data(), view.size());
}

HttpRequest request_of(const http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = string_of(message.method_string());
  if (request.method == "HEAD") request.method = "GET";
  const std::string target = string_of(message.target());
  const size_t question = std::min(target.find('?'), target.size());
  request.path = target.substr(0, question);
  if (question < target.size()) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string name = string_of(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string value = string_of(field.value());
    const auto [at, is_new] = request.headers.emplace(std::move(name), value);
    if (!is_new) at->second += ", " + value;
  }
  request.body = message.body();
  return request;
}

// The HTTP status of an invalid request; 0: the client is gone, or was too slow.
int status_of_failure(const boost::system::error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  const boost::system::error_code any = http::error::bad_method;
  return error.category() == any.category() ? 400 : 0;
}

}  // namespace

HttpConnection::HttpConnection(Owner& owner, asio::ip::tcp::socket socket, std::string peer)
    : owner_(owner),
      stream_(std::move(socket)),
      peer_(std::move(peer)),
      since_(monotonic_seconds()) {}

void HttpConnection::start() { read_header(); }

// What the client does next has to be done within `seconds`; then the connection is closed.
void HttpConnection::expect(double seconds) {
  awaits_client_ = true;
  since_ = monotonic_seconds();
  stream_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
}

void HttpConnection::await_request() {
  if (buffer_.size() > 0) return read_header();  // it was sent right after the one before
  expect(limits().idle_seconds);
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Code error, size_t bytes) {
                            if (error) return self->end();
                            self->buffer_.commit(bytes);
                            self->read_header();
                          });
}

void HttpConnection::read_header() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits().header_bytes));
  parser_->body_limit(limits().body_bytes);
  expect(limits().header_seconds);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](Code error, size_t) {
                            if (!self->failed(error)) self->read_body();
                          });
}

void HttpConnection::read_body() {
  const auto& header = parser_->get();
  if (!beast::iequals(header[http::field::expect], "100-continue")) return receive_body();
  asio::async_write(stream_, asio::buffer(kContinue, sizeof(kContinue) - 1),
                    [self = shared_from_this()](Code error, size_t) {
                      if (!self->failed(error)) self->receive_body();
                    });
}

void HttpConnection::receive_body() {
  expect(limits().body_seconds);
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Code error, size_t) {
    if (!self->failed(error)) self->hand_over();
  });
}

void HttpConnection::hand_over() {
  const auto& message = parser_->get();
  version_ = message.version();
  keep_alive_ = message.keep_alive();
  is_head_ = message.method() == http::verb::head;
  HttpRequest request = request_of(message);
  parser_.reset();
  awaits_client_ = false;
  stream_.expires_never();
  is_unanswered_ = true;
  owner_.count_unanswered(1);
  owner_.handle(shared_from_this(), std::move(request));
}

void HttpConnection::hold() {
  awaits_client_ = true;
  since_ = monotonic_seconds();
}

void HttpConnection::send(HttpResponse response) {
  auto& message = message_.emplace();
  message.version(version_);
  message.result(static_cast<unsigned>(response.status));
  message.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message.insert(name, value);
  message.body() = std::move(response.body);
  message.prepare_payload();
  message.keep_alive(keep_alive_);
  serializer_.emplace(message);
  is_writing_ = true;
  expect(limits().answer_seconds);
  auto sent = [self = shared_from_this()](Code error, size_t) {
    self->is_writing_ = false;
    self->serializer_.reset();
    self->message_.reset();
    if (error) return self->end();
    self->answered();
  };
  if (is_head_) {
    http::async_write_header(stream_, *serializer_, std::move(sent));
  } else {
    http::async_write(stream_, *serializer_, std::move(sent));
  }
}

void HttpConnection::send_last(HttpResponse response) {
  keep_alive_ = false;
  send(std::move(response));
}

void HttpConnection::send_later(std::shared_ptr<HttpReply> reply) {
  if (!is_open()) return reply->disconnect();
  reply_ = std::move(reply);
  is_begun_ = false;
  is_last_ = false;
  watch();
  // A reply is of any thread, and may outlive the connection: it is detached before.
  reply_->attach([this] {
    owner_.run_soon([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->pump();
    });
  });
}

// Reads what comes while the answer is made: the end, when the client has left, or the start of the
// next request, which waits.
void HttpConnection::watch() {
  if (buffer_.size() > 0) return;
  is_watching_ = true;
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Code error, size_t bytes) {
                            self->is_watching_ = false;
                            if (!error) self->buffer_.commit(bytes);
                            if (self->is_answered_) return self->next_request();
                            if (error) self->end();
                          });
}

// Writes what the reply has, one piece at a time.
void HttpConnection::pump() {
  if (!reply_ || is_writing_ || !is_open()) return;
  HttpReply::Pending next = reply_->take();
  if (next.aborted) return end();
  if (next.head && next.is_whole) return send(std::move(*next.head));
  is_last_ = next.ended;
  std::string pieces = std::move(next.body);
  if (is_head_) pieces.clear();
  if (next.head) begin_body(*next.head);
  if (!is_begun_) return;
  if (is_chunked_ && !pieces.empty()) {
    pieces = fmt::format("{:x}\r\n", pieces.size()) + pieces + "\r\n";
  }
  if (is_chunked_ && is_last_ && !is_head_) pieces += "0\r\n\r\n";
  if (head_) {
    pieces_ = std::move(pieces);  // after the head
    return;
  }
  if (!pieces.empty()) return write_pieces(std::move(pieces));
  if (is_last_) answered();
}

void HttpConnection::begin_body(const HttpResponse& head) {
  is_begun_ = true;
  is_chunked_ = version_ >= 11;
  auto& message = head_.emplace();
  message.version(version_);
  message.result(static_cast<unsigned>(head.status));
  message.set(http::field::content_type, head.content_type);
  for (const auto& [name, value] : head.headers) message.insert(name, value);
  keep_alive_ = keep_alive_ && is_chunked_;
  message.chunked(is_chunked_);
  message.keep_alive(keep_alive_);
  head_serializer_.emplace(message);
  is_writing_ = true;
  expect(limits().answer_seconds);
  http::async_write_header(stream_, *head_serializer_,
                           [self = shared_from_this()](Code error, size_t) {
                             self->head_serializer_.reset();
                             self->head_.reset();
                             if (error || self->pieces_.empty()) return self->after_write(error);
                             self->write_pieces(std::exchange(self->pieces_, {}));
                           });
}

void HttpConnection::write_pieces(std::string pieces) {
  is_writing_ = true;
  pieces_ = std::move(pieces);
  expect(limits().answer_seconds);
  asio::async_write(stream_, asio::buffer(pieces_),
                    [self = shared_from_this()](Code error, size_t) {
                      self->pieces_.clear();
                      self->after_write(error);
                    });
}

void HttpConnection::after_write(const Code& error) {
  is_writing_ = false;
  if (error) return end();
  if (is_last_) return answered();
  awaits_client_ = false;
  since_ = monotonic_seconds();
  pump();
}

// The answer has been sent.
void HttpConnection::answered() {
  drop_reply();
  if (!is_watching_) return next_request();
  is_answered_ = true;
  stream_.cancel();
}

void HttpConnection::next_request() {
  is_answered_ = false;
  if (!is_open()) return end();
  if (keep_alive_) return await_request();
  Code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  expect(kLingerSeconds);
  linger(0);
}

void HttpConnection::drop_reply() {
  if (std::exchange(is_unanswered_, false)) owner_.count_unanswered(-1);
  if (const auto reply = std::exchange(reply_, nullptr)) reply->disconnect();
}

void HttpConnection::close() {
  drop_reply();
  stream_.close();
}

// A socket that is closed with unread bytes resets the connection, and its client may lose the
// answer.
void HttpConnection::linger(size_t bytes) {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this(), bytes](Code error, size_t more) {
                            if (error || bytes + more > kMostLingerBytes) return self->end();
                            self->linger(bytes + more);
                          });
}

bool HttpConnection::failed(const Code& error) {
  if (!error) return false;
  switch (const int status = status_of_failure(error)) {
    case 0: end(); break;
    case 413: {
      const std::string sent = string_of(parser_->get()[http::field::content_length]);
      refuse(status, fmt::format("the request's body has {} bytes; at most {} are accepted",
                                 sent.empty() ? "too many" : printable(sent), limits().body_bytes));
      break;
    }
    case 431:
      refuse(status, fmt::format("the request's header is too long; at most {} bytes are accepted",
                                 limits().header_bytes));
      break;
    default: refuse(status, "the request is not HTTP/1.1: " + error.message());
  }
  return true;
}

void HttpConnection::refuse(int status, const std::string& text) {
  version_ = 11;
  is_head_ = false;
  send_last(owner_.refusal(status, text));
}

void HttpConnection::end() {
  close();
  owner_.forget(shared_from_this());
}

}  // namespace tutti
