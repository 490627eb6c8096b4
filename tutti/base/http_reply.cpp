#include "tutti/base/http_reply.h"

#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/http_server.h"

namespace tutti {

HttpReply::HttpReply(size_t buffer_bytes) : most_bytes_(buffer_bytes) {}

HttpReply::~HttpReply() = default;

void HttpReply::answer(const HttpResponse& response) {
  const std::scoped_lock lock(mutex_);
  TUTTI_CHECK(!is_begun_, "an answer has one head");
  is_begun_ = true;
  head_ = std::make_unique<HttpResponse>(response);
  is_whole_ = true;
  ended_ = true;
  notify();
}

void HttpReply::begin(const HttpResponse& head) {
  const std::scoped_lock lock(mutex_);
  TUTTI_CHECK(!is_begun_, "an answer has one head");
  is_begun_ = true;
  head_ = std::make_unique<HttpResponse>(head);
  notify();
}

bool HttpReply::write(std::string_view piece) {
  const std::scoped_lock lock(mutex_);
  TUTTI_CHECK(is_begun_, "a piece of an answer before its head");
  if (disconnected_ || aborted_ || ended_) return false;
  if (body_.size() + piece.size() > most_bytes_) {
    aborted_ = true;
    body_.clear();
  } else {
    body_ += piece;
  }
  notify();
  return !aborted_;
}

void HttpReply::finish() {
  const std::scoped_lock lock(mutex_);
  TUTTI_CHECK(is_begun_, "the end of an answer before its head");
  ended_ = true;
  notify();
}

void HttpReply::abort() {
  const std::scoped_lock lock(mutex_);
  aborted_ = true;
  notify();
}

void HttpReply::on_disconnect(std::function<void()> gone) {
  {
    const std::scoped_lock lock(mutex_);
    if (!disconnected_) {
      gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

bool HttpReply::is_disconnected() const {
  const std::scoped_lock lock(mutex_);
  return disconnected_ || aborted_;
}

void HttpReply::attach(std::function<void()> notify) {
  const std::scoped_lock lock(mutex_);
  notify_ = std::move(notify);
  notify_();
}

HttpReply::Pending HttpReply::take() {
  const std::scoped_lock lock(mutex_);
  Pending pending;
  pending.head = std::move(head_);
  pending.is_whole = is_whole_;
  pending.body = std::exchange(body_, {});
  pending.ended = ended_;
  pending.aborted = aborted_;
  return pending;
}

void HttpReply::disconnect() {
  std::function<void()> gone;
  {
    const std::scoped_lock lock(mutex_);
    notify_ = nullptr;
    const bool was = std::exchange(disconnected_, true);
    gone = std::exchange(gone_, nullptr);
    body_.clear();
    if (was || (ended_ && !aborted_)) return;
  }
  if (gone) gone();
}

}  // namespace tutti
