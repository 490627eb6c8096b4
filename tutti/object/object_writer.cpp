#include "tutti/object/object_writer.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"

namespace tutti::object {

// S3 takes 10,000 parts. Their size stays the same for as long as it can: some stores demand it.
constexpr int kEqualParts = 8000;
constexpr int64_t kLargePartBytes = int64_t{1} << 30;

ObjectWriter::ObjectWriter(const Client& client, Uri uri, const WriteLimits& limits)
    : client_(client), uri_(std::move(uri)), limits_(limits) {}

ObjectWriter::~ObjectWriter() {
  stop_threads();
  if (closed_ || id_.empty()) return;
  try {
    client_.abort_upload(uri_, id_);
  } catch (const Error&) {
    // Retention finds it (ObjectStore::end_uploads).
  }
}

int64_t ObjectWriter::next_part_bytes() const {
  return last_number_ < kEqualParts ? limits_.part_bytes
                                    : std::max(limits_.part_bytes, kLargePartBytes);
}

void ObjectWriter::append(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const auto room = static_cast<size_t>(next_part_bytes()) - buffer_.size();
    const size_t taken = std::min(room, size);
    buffer_.append(next, taken);
    size_bytes_ += static_cast<int64_t>(taken);
    next += taken;
    size -= taken;
    if (taken == room) send_part();
  }
}

void ObjectWriter::send_part() {
  if (id_.empty()) id_ = client_.begin_upload(uri_);
  Part part = {++last_number_, std::exchange(buffer_, {})};
  if (limits_.parallel == 0) return upload(part);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return failure_ || static_cast<int>(waiting_.size()) + uploading_ < limits_.parallel;
  });
  if (failure_) std::rethrow_exception(failure_);
  waiting_.push_back(std::move(part));
  if (static_cast<int>(threads_.size()) < limits_.parallel) {
    threads_.emplace_back([this] { work(); });
  }
  lock.unlock();
  changed_.notify_all();
}

void ObjectWriter::upload(const Part& part) {
  UploadPart done = client_.upload_part(uri_, id_, part.number, part.bytes);
  const std::lock_guard lock(mutex_);
  parts_.push_back(std::move(done));
}

void ObjectWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const Part part = std::move(waiting_.front());
    waiting_.pop_front();
    ++uploading_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      upload(part);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --uploading_;
    if (failure) {
      if (!failure_) failure_ = failure;
      waiting_.clear();
    }
    changed_.notify_all();
  }
}

void ObjectWriter::wait_for_parts() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && uploading_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void ObjectWriter::stop_threads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ObjectWriter::sync() { wait_for_parts(); }

void ObjectWriter::close() {
  if (closed_) return;
  if (id_.empty()) {
    client_.put(uri_, buffer_);
    closed_ = true;
    return;
  }
  if (!buffer_.empty()) send_part();
  wait_for_parts();
  std::sort(parts_.begin(), parts_.end(),
            [](const UploadPart& a, const UploadPart& b) { return a.number < b.number; });
  client_.complete_upload(uri_, id_, parts_, size_bytes_);
  closed_ = true;
}

}  // namespace tutti::object
