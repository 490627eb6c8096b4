// Needs no CUDA header: it checks the times in a recorder (cuda/record.h).
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

TEST(OpTimerTest, MeasuresDeviceTimeNotHostTime) {
  if (testing::on_cpu()) GTEST_SKIP() << "skipped: needs a device";
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
    // The delay of the device before the operation does not count.
    EXPECT_LT(own, seconds - 0.5 * kHoldSeconds);
    EXPECT_GE(record.begin_seconds, begin);
  }
  stream->set_recorder(nullptr);
}

}  // namespace
}  // namespace tutti::engine
