#include "tutti/base/new_folder.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti {
namespace {

void make_folder(FileSystem& files, const std::string& path) {
  NewFolder out(files, path);
  for (const char* name : {"a", "b"}) {
    write_file_atomic(files, join_path(out.partial(), name), "text");
  }
  out.commit();
}

// At every moment the folder is absent, empty as it was, or whole; and the same work succeeds then.
TEST(NewFolder, PowerLossLeavesItCompleteOrAbsent) {
  for (const bool is_there : {false, true}) {
    MemoryFileSystem files;
    files.create_directories("work");
    if (is_there) files.create_directories("work/out");
    files.start_record();
    make_folder(files, "work/out/");
    int whole = 0;
    for (int64_t operations = 0; operations <= files.operation_count(); ++operations) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        const auto after = files.crash_after(operations, seed);
        const bool exists = after->exists("work/out") && !after->list("work/out").empty();
        if (exists) {
          ++whole;
          EXPECT_EQ(read_file(*after, "work/out/a") + read_file(*after, "work/out/b"), "texttext");
          continue;
        }
        make_folder(*after, "work/out");
        EXPECT_EQ(after->list("work").size(), 1U);
      }
    }
    EXPECT_GT(whole, 0);
  }
}

TEST(NewFolder, WithoutCommitNothingIsLeft) {
  MemoryFileSystem files;
  files.create_directories("work");
  { const NewFolder out(files, "work/out"); }
  EXPECT_TRUE(files.list("work").empty());
}

TEST(NewFolder, WhatIsThereStays) {
  MemoryFileSystem files;
  files.create_directories("out");
  write_file_atomic(files, "out/mine", "text");
  try {
    const NewFolder out(files, "out");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
  EXPECT_EQ(read_file(files, "out/mine"), "text");
  EXPECT_FALSE(files.exists("out.partial"));
}

}  // namespace
}  // namespace tutti
