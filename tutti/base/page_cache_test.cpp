#include "tutti/base/page_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "tutti/base/file.h"

namespace tutti {
namespace {

int64_t resident_pages(const std::string& path, size_t size) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> pages(size / 4096);
  EXPECT_EQ(::mincore(data, size, pages.data()), 0);
  ::munmap(data, size);
  ::close(fd);
  int64_t count = 0;
  for (const unsigned char page : pages) count += page & 1U;
  return count;
}

TEST(PageCache, ForgetsAFile) {
  if (::sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "skipped: other page size";
  constexpr size_t kBytes = size_t{256} * 4096;
  const std::string path = ::testing::TempDir() + "/page_cache_test." + std::to_string(::getpid());
  write_file_atomic(posix_file_system(), path, std::string(kBytes, 'x'));
  const int64_t before = resident_pages(path, kBytes);
  EXPECT_TRUE(drop_cached_file(path));
  const int64_t after = resident_pages(path, kBytes);
  posix_file_system().remove_file(path);
  // A file system in memory has nothing to forget.
  if (after == before) GTEST_SKIP() << "skipped: this folder keeps its files in memory";
  EXPECT_EQ(after, 0);
}

TEST(PageCache, SaysWhatItCannotForget) { EXPECT_FALSE(drop_cached_file("/no/such/file")); }

}  // namespace
}  // namespace tutti
