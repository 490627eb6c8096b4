#include "tutti/engine/cpu/stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"

namespace tutti::engine {
namespace {

TEST(CpuStream, EnterSetsTheThreadCount) {
  const CpuStream one(1);
  const CpuStream two(2);
  one.enter();
  EXPECT_EQ(thread_count(), 1);
  two.enter();
#ifdef _OPENMP
  EXPECT_EQ(thread_count(), 2);
#endif
}

// Single-threaded streams, such as that of the rank consensus, do not change the default of others.
TEST(CpuStream, DefaultThreadCountIgnoresOtherStreams) {
  const int all = CpuStream(0).threads();
  const CpuStream one(1);
  EXPECT_EQ(CpuStream(0).threads(), all);
  const CpuStream many(all + 3);
  EXPECT_EQ(CpuStream(0).threads(), all);
}

TEST(CpuStream, ScratchGrowsOnlyForLargerRequests) {
  CpuStream stream(1);
  void* first = stream.scratch(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0U);
  EXPECT_EQ(stream.scratch(1), first);
  EXPECT_EQ(stream.scratch(1000), first);
  const int64_t large = int64_t{8} << 20;
  void* second = stream.scratch(large);
  std::memset(second, 1, static_cast<size_t>(large));
  EXPECT_EQ(stream.scratch(1000), second);
}

TEST(Record, RecordsOnlyWithARecorder) {
  CpuStream stream(1);
  Recorder recorder;
  EXPECT_EQ(begin_op(stream), 0);
  record(stream, {.op = "gemm", .dims = {1, 2, 3}, .flops = 12, .bytes = 34}, 0);
  stream.set_recorder(&recorder);
  const double begin = begin_op(stream);
  record(stream, {.op = "gemm", .dims = {4, 5, 6}, .flops = 240, .bytes = 56}, begin);
  stream.set_recorder(nullptr);
  record(stream, {.op = "gemm", .dims = {7, 8, 9}, .flops = 0, .bytes = 0}, 0);
  ASSERT_EQ(recorder.records().size(), 1U);
  const OpRecord& entry = recorder.records()[0];
  EXPECT_STREQ(entry.op, "gemm");
  EXPECT_EQ(entry.dims, (std::array<int64_t, kMaxOpDims>{4, 5, 6, 0, 0, 0}));
  EXPECT_EQ(entry.flops, 240);
  EXPECT_EQ(entry.bytes, 56);
  EXPECT_GT(entry.begin_seconds, 0);
  EXPECT_GE(entry.end_seconds, entry.begin_seconds);
}

}  // namespace
}  // namespace tutti::engine
