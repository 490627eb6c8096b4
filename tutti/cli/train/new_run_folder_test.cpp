#include "tutti/cli/train/new_run_folder.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"

namespace tutti::cli {
namespace {

// A start that writes into the folder, and may get as far as its first event.
void start(FileSystem& files, bool keep, bool succeeds) {
  NewRunFolder folder(files, "runs/new", keep);
  files.create_directories("runs/new");
  write_file_atomic(files, "runs/new/tokenizer.json", "{}");
  telemetry::Telemetry telemetry;
  telemetry.add(folder.watch());
  telemetry.warn("no GPU");
  if (succeeds) telemetry.emit(telemetry::RunStarted{});
}

TEST(NewRunFolder, AFailedStartLeavesNothing) {
  MemoryFileSystem files;
  start(files, false, false);
  EXPECT_FALSE(files.exists("runs"));
  files.create_directories("runs");
  start(files, false, false);
  EXPECT_TRUE(files.list("runs").empty());
  files.create_directories("runs/other");
  start(files, false, false);
  EXPECT_EQ(files.list("runs").size(), 1U);
}

TEST(NewRunFolder, RunFoldersStayOnceStarted) {
  for (const bool keep : {false, true}) {
    MemoryFileSystem files;
    start(files, keep, !keep);
    EXPECT_TRUE(files.exists("runs/new/tokenizer.json"));
  }
  MemoryFileSystem files;
  files.create_directories("runs/new");
  start(files, false, false);
  EXPECT_TRUE(files.exists("runs/new/tokenizer.json"));
}

}  // namespace
}  // namespace tutti::cli
