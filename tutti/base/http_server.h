// An HTTP/1.1 server that slow clients cannot block: one thread reads and writes every connection,
// and handlers, which run on a few others, get whole requests only. The header and the body of a
// request each have one deadline, however often bytes arrive. Connections are bounded per client
// and in total; beyond the bound the connection that has waited longest for its client is closed in
// favour of the new one. A handler may hold a request that it has nothing to say to yet, or answer
// it later and piece by piece (http_reply.h); either costs a connection and no thread. There is no
// TLS: put a proxy before it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/http_reply.h"

namespace tutti {

struct HttpLimits {
  double header_seconds = 10;  // until a header is complete
  double body_seconds = 30;    // then until its body is
  double answer_seconds = 60;  // until the client has taken the response, or the pieces made so far
  double idle_seconds = 15;    // between two requests of a connection
  size_t header_bytes = 16 << 10;
  size_t body_bytes = 256 << 10;
  size_t connections = 512;             // in total; at most half of the open files of the process
  size_t connections_per_client = 128;  // of one network (client_address.h); not for proxies
  size_t workers = 8;                   // threads that run handlers
  size_t queued_requests = 128;         // that wait for a worker; beyond it the answer is 503
};

struct HttpRequest {
  std::string method;  // "GET"; HEAD comes as GET, and the server omits the body of the answer
  std::string path;    // "/metrics"
  std::string query;   // what follows "?"; parse_form() (form.h) reads it
  std::map<std::string, std::string> headers;  // lower-case names; repeated ones joined by ", "
  std::string body;
  std::string client;       // address of the client; where a proxy asks, the one that it names
  bool secure = false;      // a proxy says that the client came by TLS
  double held_seconds = 0;  // for how long it has been held; 0: this is its first time

  std::string header(const std::string& name) const;  // empty: absent
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  // The answer is given through this, now or later; all else here is then ignored.
  std::shared_ptr<HttpReply> later = nullptr;
  // No answer yet: the request is handled again after the next wake(), and nothing is sent. Its
  // connection counts as one that waits for its client.
  bool hold = false;
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // numeric, or a name of this machine
  int port = 0;                       // 0: a free one
  // Addresses whose X-Forwarded-For and X-Forwarded-Proto are believed.
  std::vector<std::string> proxies;
  HttpLimits limits;
  // On several threads at once. What it throws is logged and answered by 500.
  std::function<HttpResponse(const HttpRequest&)> handler;
  // The answer to what never becomes a request: 400, 413, 431, 500, 503. Absent: the text.
  std::function<HttpResponse(int status, const std::string& text)> refusal;
  std::function<void(const std::string&)> log;
};

class HttpServer {
 public:
  // Listens. Throws usage for an address that is not an address of this machine, permission for a
  // privileged port, io for one that is taken.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();  // after run() has returned; waits for handlers that have begun
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  void run();   // returns after stop()
  void stop();  // from any thread
  void wake();  // from any thread: held requests are handled again

  // From any thread: open connections, and requests whose answer is not sent yet.
  size_t open_connections() const;
  size_t unanswered_requests() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
