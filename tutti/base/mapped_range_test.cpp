#include "tutti/base/mapped_range.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti {
namespace {

// As a medium that fails: what is behind the end of a mapped file cannot be read either.
TEST(MappedRangeDeathTest, UnreadableFilesAreNamed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer handles SIGBUS";
#endif
  FileSystem& files = posix_file_system();
  const std::string path =
      join_path(testing::TempDir(), "tutti_mapped_range_" + std::to_string(::getpid()));
  const std::string other = path + "_other";
  for (const std::string& each : {path, other}) {
    write_file_atomic(files, each, std::string(100'000, 'x'));
  }
  files.map(other).reset();  // unmapped files are forgotten
  const auto mapped = files.map(path);
  const auto read_after_cut = [&] {
    std::filesystem::resize_file(path, 0);
    const volatile char* last = &mapped->bytes().back();
    ::_exit(*last);
  };
  EXPECT_EXIT(read_after_cut(), testing::KilledBySignal(SIGBUS),
              "tutti: error: '.*tutti_mapped_range_[0-9]+': a part of it cannot be read");
  files.remove_file(path);
  files.remove_file(other);
}

// More than fits.
TEST(MappedRange, AnyNumberMayBeThere) {
  FileSystem& files = posix_file_system();
  const std::string path =
      join_path(testing::TempDir(), "tutti_mapped_ranges_" + std::to_string(::getpid()));
  write_file_atomic(files, path, "text");
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<MappedFile>> all;
    for (int i = 0; i < 300; ++i) all.push_back(files.map(path));
    EXPECT_EQ(all.back()->bytes(), "text");
  }
  files.remove_file(path);
}

}  // namespace
}  // namespace tutti
