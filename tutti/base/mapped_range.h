// A mapped file may stop being readable while it is read: its medium fails, or another process
// truncates it. The kernel then kills the process silently with SIGBUS. While a range is registered
// here, a message on standard error names the file first; the process still ends. Where another
// handler takes SIGBUS, nothing is reported here.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

class MappedRange {
 public:
  // `path` is to live as long as this object. Any number of ranges may be there; the file of the
  // 257th and further ones is not named.
  MappedRange(const void* begin, size_t size, const std::string& path);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

 private:
  size_t slot_;
};

}  // namespace tutti
