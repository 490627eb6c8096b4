#include "tutti/base/page_cache.h"

#include <fcntl.h>
#include <unistd.h>

namespace tutti {

bool drop_page_cache() {
  const int fd = ::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ::sync();  // only clean pages are dropped
  const bool done = ::write(fd, "1\n", 2) == 2;
  ::close(fd);
  return done;
}

bool drop_cached_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = ::fdatasync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
  ::close(fd);
  return done;
}

}  // namespace tutti
