#include "tutti/endpoint/use_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::endpoint {
namespace {

UseRecord record(int64_t number) {
  return {1000 + number,
          "0123456789ab",
          "ann",
          "chat",
          "cmpl-" + std::to_string(number),
          {1, number, 1, 2 * number, 90'000'000}};
}

std::vector<UseRecord> read(FileSystem& files, int64_t* damaged = nullptr) {
  std::vector<UseRecord> records;
  const int64_t count =
      read_use_log(files, "use", [&](const UseRecord& each) { records.push_back(each); });
  if (damaged != nullptr) *damaged = count;
  return records;
}

TEST(UseLog, KeepsWhatWasAddedOverRestarts) {
  MemoryFileSystem files;
  EXPECT_TRUE(read(files).empty());
  for (int64_t i = 0; i < 3; ++i) {
    UseLog log(files, "use");
    log.add(record(i));
  }
  EXPECT_EQ(read(files), (std::vector<UseRecord>{record(0), record(1), record(2)}));
}

TEST(UseLog, ATornLineCostsItselfAlone) {
  MemoryFileSystem files;
  {
    UseLog log(files, "use");
    log.add(record(0));
    log.add(record(1));
  }
  files.cut("use", files.size_bytes("use") - 5);
  UseLog log(files, "use");
  log.add(record(2));
  int64_t damaged = 0;
  EXPECT_EQ(read(files, &damaged), (std::vector<UseRecord>{record(0), record(2)}));
  EXPECT_EQ(damaged, 1);
}

TEST(UseLog, AFullDiskLosesNothingAndIsSaid) {
  MemoryFileSystem files;
  UseLog log(files, "use");
  log.add(record(0));
  std::string problem;
  EXPECT_TRUE(log.is_kept(problem));
  files.set_capacity(files.size_bytes("use") + 20);  // capacity for a part of the next line
  log.add(record(1));
  log.add(record(2));
  EXPECT_FALSE(log.is_kept(problem));
  EXPECT_NE(problem, "");
  files.set_capacity(1 << 20);
  EXPECT_TRUE(log.is_kept(problem));
  EXPECT_EQ(problem, "");
  EXPECT_EQ(read(files), (std::vector<UseRecord>{record(0), record(1), record(2)}));
}

// Whenever power is lost: what was synced is there, nothing twice, in order.
TEST(UseLog, APowerCutLosesNothingThatWasSynced) {
  MemoryFileSystem files;
  files.start_record();
  std::vector<int64_t> synced_after;  // operations, until record i is durable
  {
    UseLog log(files, "use");
    for (int64_t i = 0; i < 4; ++i) {
      log.add(record(i));
      log.sync();
      synced_after.push_back(files.operation_count());
    }
  }
  for (int64_t cut = 0; cut <= files.operation_count(); ++cut) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const auto disk = files.crash_after(cut, seed);
      const std::vector<UseRecord> found = read(*disk);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i], record(static_cast<int64_t>(i)));
      }
      for (size_t i = 0; i < synced_after.size(); ++i) {
        if (cut >= synced_after[i]) {
          EXPECT_GT(found.size(), i) << cut << " " << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::endpoint
