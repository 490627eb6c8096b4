// Needs no header of CUDA's: it asks what a recorder is told (cuda/record.h).
#include <gtest/gtest.h>

#include "tutti/base/clock.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/ops.h"
#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::TestMatrix;

constexpr double kHoldSeconds = 60e-6;  // op_timer.h

TEST(OpTimerTest, AnOperationsTimeIsTheDevicesNotTheHosts) {
  if (testing::on_cpu()) GTEST_SKIP() << "the CPU's operations are timed where they run";
  const auto stream = testing::make_test_stream(1);
  const TestMatrix x = TestMatrix(64, 256).fill(1);
  TestMatrix y(64, 256);
  stream->ops().copy(*stream, {.x = x, .out = y});
  stream->synchronize();
  Recorder recorder;
  stream->set_recorder(&recorder);
  for (int i = 0; i < 3; ++i) {
    const double begin = monotonic_seconds();
    stream->ops().copy(*stream, {.x = x, .out = y});
    const double seconds = monotonic_seconds() - begin;
    ASSERT_EQ(recorder.records().size(), static_cast<size_t>(i) + 1);
    const OpRecord& record = recorder.records().back();
    const double own = record.end_seconds - record.begin_seconds;
    EXPECT_GT(own, 0);
    // The device is held back before the operation, which is none of its time.
    EXPECT_LT(own, seconds - 0.5 * kHoldSeconds);
    EXPECT_GE(record.begin_seconds, begin);
  }
  stream->set_recorder(nullptr);
}

}  // namespace
}  // namespace tutti::engine
