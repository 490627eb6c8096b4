#include "tutti/train/session/peak_record.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"

namespace tutti::train {
namespace {

TEST(PeakRecord, KeepsTheBestOfEachMachineAndPrecision) {
  MemoryFileSystem files;
  files.create_directories("run");
  const std::string quiet = peak_key(DType::f32, {{"n1 (cpu)", 4}});
  EXPECT_EQ(best_peak(files, "run", quiet, 100), 100);
  EXPECT_EQ(best_peak(files, "run", quiet, 50), 100);  // a busy session
  EXPECT_EQ(best_peak(files, "run", quiet, 120), 120);
  EXPECT_EQ(best_peak(files, "run", quiet, 1), 120);
  EXPECT_EQ(best_peak(files, "run", peak_key(DType::bf16, {{"n1 (cpu)", 4}}), 60), 60);
  EXPECT_EQ(best_peak(files, "run", peak_key(DType::f32, {{"n2 (cpu)", 4}}), 70), 70);
  EXPECT_EQ(best_peak(files, "run", peak_key(DType::f32, {{"n1 (cpu)", 2}}), 55), 55);
}

TEST(PeakRecord, RanksOfOneMachineShareItsThreads) {
  EXPECT_EQ(peak_key(DType::f32, {{"a", 1}, {"b", 2}, {"a", 3}}),
            peak_key(DType::f32, {{"b", 2}, {"a", 4}}));
}

TEST(PeakRecord, ADamagedRecordIsBegunAnew) {
  MemoryFileSystem files;
  files.create_directories("run");
  best_peak(files, "run", "machine", 100);
  std::string text = read_file(files, "run/peaks.json");
  text.replace(text.find("100"), 3, "900");
  write_file_atomic(files, "run/peaks.json", text);
  EXPECT_EQ(best_peak(files, "run", "machine", 50), 50);
  write_file_atomic(files, "run/peaks.json", "{");
  EXPECT_EQ(best_peak(files, "run", "machine", 40), 40);
}

}  // namespace
}  // namespace tutti::train
