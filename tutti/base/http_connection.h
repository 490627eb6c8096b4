// One connection of an HttpServer: reads whole requests within their deadlines, writes answers. All
// of it runs on the thread of HttpServer::run().
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/http_server.h"

namespace tutti {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // The server, as its connections see it. It outlives them.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const HttpLimits& limits() const = 0;
    // Leads to one call of send() or send_later(), on the same thread, now or later, perhaps after
    // hold().
    virtual void handle(std::shared_ptr<HttpConnection> connection, HttpRequest request) = 0;
    virtual HttpResponse refusal(int status, const std::string& text) const = 0;
    virtual void forget(const std::shared_ptr<HttpConnection>& connection) = 0;  // it has ended
    virtual void count_unanswered(int change) = 0;
    virtual void run_soon(std::function<void()> task) = 0;  // from any thread, on the server's
  };

  HttpConnection(Owner& owner, boost::asio::ip::tcp::socket socket, std::string peer);

  void start();
  void hold();  // there is no answer yet
  void send(HttpResponse response);
  void send_last(HttpResponse response);  // and close
  void send_later(std::shared_ptr<HttpReply> reply);
  void close();
  // The server ends: a reply must not lead here any more.
  void abandon() { drop_reply(); }
  bool is_open() const { return stream_.socket().is_open(); }

  const std::string& peer() const { return peer_; }
  // What comes next is up to the client, not to a handler; since then, in monotonic_seconds().
  bool awaits_client() const { return awaits_client_; }
  double since() const { return since_; }

 private:
  using Code = boost::system::error_code;
  using Body = boost::beast::http::string_body;

  const HttpLimits& limits() const { return owner_.limits(); }
  void expect(double seconds);
  void await_request();
  void read_header();
  void read_body();
  void receive_body();
  void hand_over();
  void linger(size_t bytes);
  void watch();
  void pump();
  void begin_body(const HttpResponse& head);
  void write_pieces(std::string pieces);
  void after_write(const Code& error);
  void answered();
  void next_request();
  void drop_reply();
  bool failed(const Code& error);
  void refuse(int status, const std::string& text);
  void end();

  Owner& owner_;
  boost::beast::tcp_stream stream_;
  std::string peer_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<Body>> parser_;
  std::optional<boost::beast::http::response<Body>> message_;
  std::optional<boost::beast::http::response_serializer<Body>> serializer_;
  // An answer in pieces.
  using HeadBody = boost::beast::http::empty_body;
  std::shared_ptr<HttpReply> reply_;
  std::optional<boost::beast::http::response<HeadBody>> head_;
  std::optional<boost::beast::http::response_serializer<HeadBody>> head_serializer_;
  std::string pieces_;     // being written
  bool is_begun_ = false;  // the head is written, or being written
  bool is_chunked_ = false;
  bool is_writing_ = false;
  bool is_last_ = false;      // `pieces_` ends the body
  bool is_watching_ = false;  // a read waits for the client to leave, or to ask on
  bool is_answered_ = false;  // and the answer has been sent meanwhile
  bool is_unanswered_ = false;

  unsigned version_ = 11;
  bool keep_alive_ = false;
  bool is_head_ = false;
  bool awaits_client_ = true;
  double since_;
};

}  // namespace tutti
