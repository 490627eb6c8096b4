// Shared memory of the ranks of one host, without a name that could leak: an anonymous file, opened
// by other processes through /proc/<pid>/fd and freed with its last user. A rank holds a lock on
// its byte of the file while it lives; the kernel releases it when the process ends, even by
// SIGKILL, so others can ask.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tutti::comm {

class Store;  // comm/rendezvous/store.h

class Segment {
 public:
  // Zero-filled. Pages exist from their first use on. Throws unsupported.
  static std::shared_ptr<Segment> create(int64_t bytes);
  // Throws peer when the process that created it does not run any more, permission when its memory
  // may not be opened, corrupt when the sizes differ.
  static std::shared_ptr<Segment> attach(const std::string& path, int64_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  std::string path() const;  // for attach(), while this process lives

  void hold(int rank) const;     // throws peer when another process does
  bool is_held(int rank) const;  // by another process

 private:
  Segment(int file, int64_t bytes);
  int file_ = -1;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Where ranks of a host find their segments, by key. The first member of a group creates, the
// others attach.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // Throws peer when it is not there within the timeout.
  virtual std::shared_ptr<Segment> open(const std::string& key, int64_t bytes, bool create,
                                        double timeout_seconds) = 0;
};

// Ranks are threads of this process: every one gets the same mapping.
std::shared_ptr<SegmentSource> make_thread_segments();

// Ranks are processes: paths are exchanged through the store.
std::shared_ptr<SegmentSource> make_process_segments(std::shared_ptr<Store> store);

}  // namespace tutti::comm
