#include "tutti/base/binary.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tutti/base/file.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

TEST(Binary, HashesTheExecutableAndItsLibraries) {
  const Binary binary = describe_binary();
  const std::string bytes = read_file(posix_file_system(), "/proc/self/exe");
  EXPECT_EQ(binary.executable_hash, hash_hex(hash_text(bytes)));
  int with_id = 0;
  bool c_library = false;
  for (const std::string_view entry : split(binary.libraries, ',')) {
    const auto words = split(trim(entry), ' ');
    ASSERT_EQ(words.size(), 2U) << entry;
    c_library = c_library || starts_with(words[0], "libc.so");
    if (words[1] != "?") {
      EXPECT_EQ(words[1].size(), 8U) << entry;
      ++with_id;
    }
  }
  EXPECT_TRUE(c_library) << binary.libraries;
  EXPECT_GT(with_id, 0) << binary.libraries;
}

TEST(Binary, LibrariesOpenedLaterAreNotCounted) {
  const std::string before = describe_binary().libraries;
  const char* library = "libBrokenLocale.so.1";  // of the C library, and no dependency of Tutti
  if (dlopen(library, RTLD_NOLOAD | RTLD_NOW) != nullptr || dlopen(library, RTLD_NOW) == nullptr) {
    GTEST_SKIP() << library << " cannot be opened here";
  }
  EXPECT_EQ(describe_binary().libraries, before);
}

}  // namespace
}  // namespace tutti
