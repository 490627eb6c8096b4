#include "tutti/cli/program/output_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/object/file_system.h"

namespace tutti::cli {
namespace {

TEST(OutputLock, OneAtATimeMakesACorpusOfAName) {
  FileSystem& files = posix_file_system();
  const std::string folder =
      join_path(testing::TempDir(), "tutti_output_lock_" + std::to_string(::getpid()));
  const std::string prefix = join_path(folder, "c");
  std::optional<OutputLock> first;
  first.emplace(files, prefix);
  try {
    const OutputLock second(files, prefix);
    ADD_FAILURE() << "both have it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("is being prepared"), std::string::npos);
  }
  { const OutputLock other(files, prefix + "2"); }
  first.reset();
  { const OutputLock again(files, prefix); }
  EXPECT_TRUE(files.list(folder).empty());
  files.remove_tree(folder);
}

// Nor is the store asked: there are no credentials for it.
TEST(OutputLock, HoldsNothingOfAnObjectStore) {
  MemoryFileSystem memory;
  object::StoreOptions options;
  options.environment = [](const std::string&) { return std::nullopt; };
  object::RoutedFileSystem files(memory, options);
  {
    const OutputLock first(files, "s3://bucket/c");
    const OutputLock second(files, "s3://bucket/c");
  }
  EXPECT_EQ(memory.operation_count(), 0);
}

}  // namespace
}  // namespace tutti::cli
