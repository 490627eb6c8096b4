#include "tutti/node/disk_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::node {
namespace {

DiskProbeOptions small() {
  DiskProbeOptions options;
  options.bytes = (5 << 20) + 17;
  options.repeats = 2;
  options.syncs = 7;
  return options;
}

TEST(DiskProbe, MeasuresAndLeavesNothing) {
  const std::string folder = testing::TempDir() + "/disk_probe_" + std::to_string(::getpid());
  FileSystem& files = posix_file_system();
  files.create_directories(folder);
  const DiskProbe probe = probe_disk(files, folder, small());
  EXPECT_EQ(probe.write_bytes_per_second.size(), 2U);
  EXPECT_EQ(probe.read_bytes_per_second.size(), 2U);
  EXPECT_EQ(probe.sync_seconds.size(), 7U);
  for (const double rate : probe.write_bytes_per_second) EXPECT_GT(rate, 0);
  EXPECT_TRUE(files.list(folder).empty());
  files.remove_tree(folder);
}

TEST(DiskProbe, FullDisksAreErrorsAndStayUnchanged) {
  MemoryFileSystem files;
  files.create_directories("/disk");
  files.set_capacity(3 << 20);
  try {
    probe_disk(files, "/disk", small());
    FAIL() << "wrote more than fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_space);
  }
  EXPECT_TRUE(files.list("/disk").empty());
}

TEST(DiskProbe, AMissingFolderIsAnError) {
  EXPECT_THROW(probe_disk(posix_file_system(), "/no/such/folder", small()), Error);
}

}  // namespace
}  // namespace tutti::node
