#include "tutti/launch/new_run_folder.h"

#include <gtest/gtest.h>

#include "tutti/base/json.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/telemetry/events.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::launch {
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

// A launcher writes no events; the ranks that it starts do.
TEST(NewRunFolder, RunsThatOtherProcessesStartedStay) {
  MemoryFileSystem files;
  for (const bool starts : {false, true}) {
    {
      NewRunFolder folder(files, "runs/new", false);
      files.create_directories("runs/new");
      const telemetry::Event event = starts ? telemetry::Event{0, telemetry::RunStarted{}}
                                            : telemetry::Event{0, telemetry::Message{}};
      write_file_atomic(files, train::events_path("runs/new"),
                        dump_json(telemetry::to_json(event)) + "\n");
      EXPECT_EQ(folder.has_run(), starts);
    }
    EXPECT_EQ(files.exists("runs/new"), starts);
  }
  MemoryFileSystem lost;  // its events
  {
    NewRunFolder folder(lost, "runs/new", false);
    lost.create_directories("runs/new/checkpoints/step-00000001");
  }
  EXPECT_TRUE(lost.exists("runs/new/checkpoints/step-00000001"));
  MemoryFileSystem others;
  {
    NewRunFolder folder(others, "runs/new", false);
    others.create_directories("runs/new/faults");
    folder.keep();
  }
  EXPECT_TRUE(others.exists("runs/new/faults"));
}

}  // namespace
}  // namespace tutti::launch
