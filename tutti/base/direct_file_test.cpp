#include "tutti/base/direct_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"

namespace tutti {
namespace {

class DirectFileTest : public testing::Test {
 protected:
  DirectFileTest() : path_(testing::TempDir() + "/direct_" + std::to_string(::getpid())) {
    text_.resize(5 * static_cast<size_t>(kDirectBytes));
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>(i * 7 + i / 4096);
    write_file_atomic(posix_file_system(), path_, text_);
  }
  ~DirectFileTest() override { posix_file_system().remove_file(path_); }

  const std::string path_;
  std::string text_;
};

TEST_F(DirectFileTest, ReadsTheBytesThatAreThere) {
  const DirectFile file(path_, DirectFile::Use::read);
  ASSERT_EQ(file.size_bytes(), 5 * kDirectBytes);
  const AlignedBytes bytes = make_aligned_bytes(2 * kDirectBytes);
  file.read(kDirectBytes, 2 * kDirectBytes, bytes.get());
  EXPECT_EQ(std::memcmp(bytes.get(), text_.data() + kDirectBytes, 2 * kDirectBytes), 0);
}

TEST_F(DirectFileTest, OverwritesNothingElse) {
  const AlignedBytes bytes = make_aligned_bytes(kDirectBytes);
  std::memset(bytes.get(), 'x', kDirectBytes);
  {
    const DirectFile file(path_, DirectFile::Use::overwrite);
    file.write(3 * kDirectBytes, kDirectBytes, bytes.get());
    file.sync();
  }
  text_.replace(3 * kDirectBytes, kDirectBytes, std::string(kDirectBytes, 'x'));
  EXPECT_EQ(read_file(posix_file_system(), path_), text_);
}

TEST(DirectFile, AMissingFileIsAnError) {
  try {
    const DirectFile file("/no/such/file", DirectFile::Use::read);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
  }
}

TEST(DiskSpaceTest, IsOfTheDiskThatHoldsThePath) {
  const auto space = disk_space(testing::TempDir());
  ASSERT_TRUE(space);
  EXPECT_GE(space->total_bytes, space->free_bytes);
  EXPECT_GT(space->total_bytes, 0);
  EXPECT_FALSE(disk_space("/no/such/folder"));
}

}  // namespace
}  // namespace tutti
