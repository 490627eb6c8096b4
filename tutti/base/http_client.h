// Requests to HTTP/1.1 servers: one each on a connection of its own, which the calling thread waits
// for. Bodies may arrive piece by piece. There is no TLS.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

struct HttpUrl {
  std::string host;
  int port = 80;
  std::string path;  // without a "/" at its end
};

// "http://host[:port][/path]". Throws usage for what is none, unsupported for https.
HttpUrl parse_http_url(const std::string& text);

struct HttpAsk {
  std::string method = "GET";
  std::string path;  // below that of the URL
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  double patience_seconds = 60;  // for the connection, and for each piece of the answer
};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // empty where `take` got it
};

// `take`: of answers with status 200, the body as it arrives. Throws io where there is no
// connection, no whole answer, or none in time, and corrupt where it is not HTTP.
HttpAnswer http_ask(const HttpUrl& server, const HttpAsk& ask,
                    const std::function<void(std::string_view)>& take = {});

// Takes an answer apart as its bytes arrive.
class HttpAnswerReader {
 public:
  explicit HttpAnswerReader(std::function<void(std::string_view)> take = {})
      : take_(std::move(take)) {}

  void add(std::string_view bytes);  // throws corrupt
  void end();                        // the server has closed; throws io where something is missing
  bool is_whole() const { return state_ == State::whole; }
  HttpAnswer& answer() { return answer_; }

 private:
  enum class State { header, sized, unsized, chunk_size, chunk, chunk_end, trailer, whole };

  bool read_header();
  bool read_line(std::string& line);
  bool step();
  void give(size_t bytes);

  std::function<void(std::string_view)> take_;
  HttpAnswer answer_;
  State state_ = State::header;
  std::string pending_;
  size_t left_ = 0;  // of the body or the chunk
};

}  // namespace tutti
