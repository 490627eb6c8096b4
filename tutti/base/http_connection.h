// One connection of an HttpServer: reads whole requests within their deadlines, writes answers. All
// of it runs on the thread of HttpServer::run().
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
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
    // Leads to one call of send(), on the same thread, now or later, perhaps after hold().
    virtual void handle(std::shared_ptr<HttpConnection> connection, HttpRequest request) = 0;
    virtual HttpResponse refusal(int status, const std::string& text) const = 0;
    virtual void forget(const std::shared_ptr<HttpConnection>& connection) = 0;  // it has ended
  };

  HttpConnection(Owner& owner, boost::asio::ip::tcp::socket socket, std::string peer);

  void start();
  void hold();  // there is no answer yet
  void send(HttpResponse response);
  void send_last(HttpResponse response);  // and close
  void close() { stream_.close(); }
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
  unsigned version_ = 11;
  bool keep_alive_ = false;
  bool is_head_ = false;
  bool awaits_client_ = true;
  double since_;
};

}  // namespace tutti
