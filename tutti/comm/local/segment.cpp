#include "tutti/comm/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/comm/rendezvous/store.h"

namespace tutti::comm {
namespace {

struct flock lock_of(int rank, int16_t type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

class ThreadSegments : public SegmentSource {
 public:
  std::shared_ptr<Segment> open(const std::string& key, int64_t bytes, bool create,
                                double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    if (create) {
      const std::shared_ptr<Segment> made = Segment::create(bytes);
      segments_[key] = made;
      changed_.notify_all();
      return made;
    }
    std::shared_ptr<Segment> found;
    changed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds), [&] {
      const auto at = segments_.find(key);
      if (at != segments_.end()) found = at->second;
      return found != nullptr;
    });
    if (found == nullptr) fail(ErrorKind::peer, "{}: its first rank did not arrive", key);
    return found;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // Held until the source goes: a rank may look for a segment after its creator has left.
  std::map<std::string, std::shared_ptr<Segment>> segments_;
};

class ProcessSegments : public SegmentSource {
 public:
  explicit ProcessSegments(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  std::shared_ptr<Segment> open(const std::string& key, int64_t bytes, bool create,
                                double timeout_seconds) override {
    if (!create) return Segment::attach(store_->get(key, timeout_seconds), bytes);
    std::shared_ptr<Segment> made = Segment::create(bytes);
    store_->set(key, made->path());
    return made;
  }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Segment> Segment::create(int64_t bytes) {
  const int file = memfd_create("tutti", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, bytes) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    fail(ErrorKind::unsupported, "the system does not grant {} bytes of memory to share ({})",
         bytes, std::strerror(error));
  }
  return std::shared_ptr<Segment>(new Segment(file, bytes));
}

std::shared_ptr<Segment> Segment::attach(const std::string& path, int64_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const int error = errno;
    if (error == EACCES || error == EPERM) {
      fail(ErrorKind::permission,
           "{}: the memory of another rank may not be opened ({}); ranks of one host run as one "
           "user, in one container",
           path, std::strerror(error));
    }
    fail(ErrorKind::peer, "{}: the rank that created this memory has exited ({})", path,
         std::strerror(error));
  }
  struct stat status = {};
  if (fstat(file, &status) != 0 || status.st_size != bytes) {
    close(file);
    fail(ErrorKind::corrupt, "{}: {} bytes of shared memory, expected {}", path, status.st_size,
         bytes);
  }
  return std::shared_ptr<Segment>(new Segment(file, bytes));
}

Segment::Segment(int file, int64_t bytes) : file_(file), bytes_(bytes) {
  data_ = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data_ == MAP_FAILED) {
    const int error = errno;
    close(file);
    fail(ErrorKind::unsupported, "{} bytes of shared memory cannot be mapped ({})", bytes,
         std::strerror(error));
  }
}

Segment::~Segment() {
  munmap(data_, static_cast<size_t>(bytes_));
  close(file_);
}

std::string Segment::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), file_); }

// Locks of the open file description, not of the process: a process that opened the file twice
// has two owners, and no close() of another descriptor drops them.
void Segment::hold(int rank) const {
  struct flock lock = lock_of(rank, F_WRLCK);
  if (fcntl(file_, F_OFD_SETLK, &lock) == 0) return;
  fail(ErrorKind::peer, "local rank {} of its group joined twice: start every rank once ({})", rank,
       std::strerror(errno));
}

bool Segment::is_held(int rank) const {
  struct flock lock = lock_of(rank, F_WRLCK);
  TUTTI_CHECK(fcntl(file_, F_OFD_GETLK, &lock) == 0, "lock of rank {}: {}", rank,
              std::strerror(errno));
  return lock.l_type != F_UNLCK;
}

std::shared_ptr<SegmentSource> make_thread_segments() { return std::make_shared<ThreadSegments>(); }

std::shared_ptr<SegmentSource> make_process_segments(std::shared_ptr<Store> store) {
  return std::make_shared<ProcessSegments>(std::move(store));
}

}  // namespace tutti::comm
