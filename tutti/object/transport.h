// One HTTP request and its response: the line between what S3 is and how bytes travel. The real one
// is curl_transport.h; tests bring one that is a store in memory.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::object {

using Query = std::vector<std::pair<std::string, std::string>>;  // decoded

struct Request {
  std::string method;  // GET, HEAD, PUT, POST, DELETE
  std::string scheme = "https";
  std::string host;  // with a port where it is not that of the scheme
  std::string path;  // decoded, begins with '/'
  Query query;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string_view body;                       // outlives the request
  // Where the body of a 2xx response goes instead of Response::body: `into_size` bytes, no more.
  char* into = nullptr;
  size_t into_size = 0;
};

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
  size_t into_size = 0;  // bytes written to Request::into

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// No whole response came: refused, reset, timed out, cut short, or the certificate is not trusted.
class TransportError : public std::runtime_error {
 public:
  TransportError(const std::string& what, bool may_pass)
      : std::runtime_error(what), may_pass_(may_pass) {}
  bool may_pass() const { return may_pass_; }  // trying again can help

 private:
  bool may_pass_;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // From any number of threads. Throws TransportError.
  virtual Response send(const Request& request) = 0;
};

// The request's target as it is sent and signed: encoded path, and "?" with the sorted query.
std::string encoded_path(const Request& request);
std::string encoded_query(const Request& request);

}  // namespace tutti::object
