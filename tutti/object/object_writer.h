// An object that is written from front to back. It appears when it is closed, whole, replacing what
// had its name; an object that is not closed leaves nothing but an upload that was begun, which the
// destructor ends where it can.
//
// Small ones are one request. Larger ones are parts, uploaded by threads of their own while the
// caller makes the next; at most `parallel` parts and the one being filled are in memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/object/client.h"

namespace tutti::object {

struct WriteLimits {
  int64_t part_bytes = int64_t{16} << 20;  // S3 wants 5 MiB or more
  int parallel = 4;                        // uploads at a time; 0: on the calling thread
};

class ObjectWriter final : public WritableFile {
 public:
  ObjectWriter(const Client& client, Uri uri, const WriteLimits& limits);
  ~ObjectWriter() override;
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  void append(const void* data, size_t size) override;
  void sync() override;  // full parts are durable, though no name leads to them yet
  void close() override;

 private:
  struct Part {
    int number = 0;
    std::string bytes;
  };
  int64_t next_part_bytes() const;
  void send_part();
  void upload(const Part& part);
  void work();
  void wait_for_parts();
  void stop_threads();

  const Client& client_;
  const Uri uri_;
  const WriteLimits limits_;
  std::string buffer_;
  std::string id_;  // of the upload; empty: none begun
  int64_t size_bytes_ = 0;
  int last_number_ = 0;
  bool closed_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> waiting_;
  int uploading_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::vector<UploadPart> parts_;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::object
