#include "tutti/engine/copy_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "tutti/engine/backend.h"
#include "tutti/engine/device_calls.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

class CopyQueueTest : public ::testing::Test {
 protected:
  CopyQueueTest() {
    const Backend& backend = testing::test_backend();
    stream_ = backend.make_stream({.threads = 2});
    queues_ = {backend.make_copy_queue(*stream_), backend.make_copy_queue(*stream_)};
  }

  static constexpr int64_t kBytes = int64_t{1} << 20;
  std::unique_ptr<Stream> stream_;
  CopyQueues queues_;
};

// A ring of two slots for more blocks than fit: each block waits until the previous one in its slot
// is copied out, and returns modified.
TEST_F(CopyQueueTest, BlocksAlternateBetweenTwoSlots) {
  constexpr int64_t kBlocks = 9;
  const bool device = stream_->memory() == ArenaKind::device;
  const Arena host("host", kBlocks * kBytes, device ? ArenaKind::pinned : ArenaKind::host);
  const Arena slots("slots", 2 * kBytes, stream_->memory());
  auto* values = static_cast<float*>(host.data());
  constexpr int64_t kCount = kBytes / static_cast<int64_t>(sizeof(float));
  const auto block = [&](int64_t i) { return values + i * kCount; };
  const auto slot = [&](int64_t i) { return static_cast<char*>(slots.data()) + i % 2 * kBytes; };
  for (int64_t i = 0; i < kBlocks; ++i) std::fill_n(block(i), kCount, static_cast<float>(i));

  for (int round = 0; round < 3; ++round) {
    const auto fetch = [&](int64_t i) {
      queues_.in->copy(slot(i), block(i), kBytes);
      queues_.in->mark(static_cast<int>(i % 2));
    };
    queues_.in->after_stream();
    fetch(0);
    fetch(1);
    for (int64_t i = 0; i < kBlocks; ++i) {
      const int point = static_cast<int>(i % 2);
      queues_.in->stream_after(point);
      // Doubled: x = x + x.
      const Matrix x = matrix(slot(i), DType::f32, 1, kCount);
      stream_->ops().copy(*stream_, {.x = x, .plus = x, .out = x});
      queues_.out->after_stream();
      queues_.out->copy(block(i), slot(i), kBytes);
      queues_.out->mark(point);
      if (i + 2 < kBlocks) {
        queues_.in->after(*queues_.out, point);
        fetch(i + 2);
      }
    }
    queues_.out->stream_after(static_cast<int>((kBlocks - 1) % 2));
    stream_->synchronize();
    for (int64_t i = 0; i < kBlocks; ++i) {
      const auto expected = static_cast<float>(i * (int64_t{2} << round));
      EXPECT_EQ(block(i)[0], expected) << i;
      EXPECT_EQ(block(i)[kCount - 1], expected) << i;
    }
  }
}

// The queue is not bounded: copies are enqueued faster than they run.
TEST_F(CopyQueueTest, HoldsAnyNumberOfCopies) {
  const bool device = stream_->memory() == ArenaKind::device;
  constexpr int kCopies = 5000;
  const Arena host("host", 2 * kCopies * 4, device ? ArenaKind::pinned : ArenaKind::host);
  auto* from = static_cast<int32_t*>(host.data());
  int32_t* to = from + kCopies;
  std::iota(from, to, 0);
  queues_.out->after_stream();
  for (int i = 0; i < kCopies; ++i) queues_.out->copy(to + i, from + i, 4);
  queues_.out->copy(nullptr, nullptr, 0);
  queues_.out->mark(0);
  queues_.out->stream_after(0);
  stream_->synchronize();
  EXPECT_EQ(std::memcmp(from, to, kCopies * 4), 0);
}

TEST_F(CopyQueueTest, NeverBlocksTheHost) {
  const bool device = stream_->memory() == ArenaKind::device;
  const Arena host("host", 2 * kBytes, device ? ArenaKind::pinned : ArenaKind::host);
  auto* data = static_cast<char*>(host.data());
  const DeviceCalls calls;
  queues_.out->after_stream();
  queues_.out->copy(data + kBytes, data, kBytes);
  queues_.out->mark(3);
  queues_.in->after(*queues_.out, 3);
  queues_.in->copy(data, data + kBytes, kBytes);
  queues_.in->mark(3);
  queues_.in->stream_after(3);
  EXPECT_EQ(calls.waits(), std::vector<std::string>());
  stream_->synchronize();  // the memory must outlive its copies
  if (!device) return;
  // Pageable memory blocks the host, and the recorded calls show it.
  std::vector<char> pageable(static_cast<size_t>(kBytes));
  const DeviceCalls recorded;
  queues_.in->copy(data, pageable.data(), kBytes);
  EXPECT_EQ(recorded.waits().size(), 1U);
  queues_.in->mark(3);
  queues_.in->stream_after(3);
  stream_->synchronize();
}

}  // namespace
}  // namespace tutti::engine
