// The answer to a request that a handler gives later, at once or in pieces, from any thread: the
// handler returns it in HttpResponse::later and keeps a reference. Nothing here blocks: pieces wait
// in a buffer until the client takes them, and a client that leaves so many untaken that the buffer
// is full, or takes longer than HttpLimits::answer_seconds for what is in it, is disconnected.
// Pieces go out as chunks of HTTP/1.1 (RFC 9112, 7.1); clients of HTTP/1.0 get them as they are,
// and the end of the connection as their end.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace tutti {

struct HttpResponse;
class HttpConnection;

class HttpReply {
 public:
  explicit HttpReply(size_t buffer_bytes = 1 << 20);
  ~HttpReply();
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  // The answer as a whole; or its head, and then its body by write() up to finish().
  void answer(const HttpResponse& response);
  void begin(const HttpResponse& head);
  // False: the client is gone, and whatever else is written is dropped.
  bool write(std::string_view piece);
  void finish();
  // The client is disconnected before the end of the body: it sees that the answer is not whole.
  void abort();

  // Calls `gone` once, when the client is disconnected before the answer has ended: on the server's
  // thread, or at once where that has happened already. It must not block.
  void on_disconnect(std::function<void()> gone);
  bool is_disconnected() const;

 private:
  friend class HttpConnection;

  // What the connection has to send next.
  struct Pending {
    std::unique_ptr<HttpResponse> head;
    bool is_whole = false;  // `head` has the body
    std::string body;
    bool ended = false;
    bool aborted = false;
  };
  void attach(std::function<void()> notify);  // called, also under the lock, when there is more
  Pending take();
  void disconnect();  // by the connection, which is not notified any more
  void notify() const {
    if (notify_) notify_();
  }

  const size_t most_bytes_;
  mutable std::mutex mutex_;  // of all below
  std::function<void()> notify_;
  std::function<void()> gone_;
  std::unique_ptr<HttpResponse> head_;
  std::string body_;
  bool is_begun_ = false;
  bool is_whole_ = false;
  bool ended_ = false;
  bool aborted_ = false;
  bool disconnected_ = false;
};

}  // namespace tutti
