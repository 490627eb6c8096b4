// Holders of a lock, by the system's list and by a real one.

#include "tutti/control/launches/lock_holders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tutti/base/text.h"

namespace tutti::control {
namespace {

TEST(LockHolders, AreThoseWithAPosixLockOnTheFile) {
  const char* text =
      "1: POSIX  ADVISORY  WRITE 21187 fe:00:42 120 120\n"
      "2: POSIX  ADVISORY  READ 21187 fe:00:42 124 124\n"
      "2: -> POSIX  ADVISORY  WRITE 7 fe:00:42 120 120\n"
      "3: FLOCK  ADVISORY  WRITE 8 fe:00:42 0 EOF\n"
      "4: POSIX  ADVISORY  READ 9 fe:00:42 128 128\n"
      "5: POSIX  ADVISORY  WRITE 10 fe:00:421 0 EOF\n"
      "6: POSIX  ADVISORY  WRITE 11 00:1b:42 0 EOF\n"
      "nonsense\n";
  const std::vector<LockHolder> expected = {{21187, true}, {9, false}};
  EXPECT_EQ(parse_locks(text, "fe:00", 42), expected);
  EXPECT_EQ(parse_locks(text, "00:1b", 42), (std::vector<LockHolder>{{11, true}}));
  EXPECT_EQ(parse_locks(text, "", 42).size(), 3);
  EXPECT_TRUE(parse_locks("", "fe:00", 42).empty());
}

TEST(LockHolders, ADeviceIsThatOfItsMount) {
  const char* text =
      "25 24 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw\n"
      "26 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
      "nonsense\n";
  EXPECT_EQ(parse_mount_device(text, 25), "00:1b");
  EXPECT_EQ(parse_mount_device(text, 26), "fe:00");
  EXPECT_EQ(parse_mount_device(text, 2), "");
}

TEST(LockHolders, AnotherProcessIsFoundAndDescribed) {
  const std::string path = testing::TempDir() + "tutti_lock_holders_" + std::to_string(::getpid());
  std::ofstream(path) << "x";
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const int file = ::open(path.c_str(), O_RDWR);
    char c = ::fcntl(file, F_SETLK, &lock) == 0 ? 'y' : 'n';
    if (::write(ready[1], &c, 1) != 1) ::_exit(1);
    (void)!::read(done[0], &c, 1);
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  const std::vector<LockHolder> holders = lock_holders(path);
  std::string text;
  if (!holders.empty()) text = describe(holders.front());
  ASSERT_EQ(::write(done[1], "x", 1), 1);
  ::waitpid(child, nullptr, 0);
  ::unlink(path.c_str());
  ASSERT_EQ(c, 'y');
  if (::access("/proc/locks", R_OK) != 0) GTEST_SKIP() << "skipped: no /proc/locks";
  const std::vector<LockHolder> expected = {{child, true}};
  EXPECT_EQ(holders, expected);
  EXPECT_TRUE(starts_with(text, "process " + std::to_string(child) + " (")) << text;
  EXPECT_NE(text.find(", of "), std::string::npos) << text;
  EXPECT_TRUE(lock_holders(path).empty());
}

}  // namespace
}  // namespace tutti::control
