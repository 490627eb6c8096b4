#include "tutti/engine/backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/engine/device_calls.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

TEST(Backend, IsFoundByName) {
  EXPECT_STREQ(find_backend("cpu").name, "cpu");
  EXPECT_STREQ(find_backend("cuda").name, "cuda");
  EXPECT_EQ(find_backend("cpu").missing(), "");
  try {
    find_backend("abacus");
    FAIL() << "found a backend 'abacus'";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "device: 'abacus' is not one of cpu, cuda");
  }
}

TEST(Backend, WithoutDeviceFailsToCreateStreamsAndMemory) {
  const Backend& cuda = cuda_backend();
  if (cuda.missing().empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_TRUE(cuda.devices().empty());
  for (const ArenaKind kind : {ArenaKind::device, ArenaKind::pinned}) {
    try {
      const Arena arena("weights", 4096, kind);
      FAIL() << "memory was allocated";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_NE(std::string(error.what()).find("weights"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(cuda.missing()), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(cuda.make_stream({}), Error);
}

// A context takes half a gigabyte of device memory.
TEST(Backend, ListsDevicesWithoutCreatingContexts) {
  const Backend& cuda = cuda_backend();
  if (!cuda.missing().empty()) GTEST_SKIP() << "skipped: " << cuda.missing();
  const DeviceCalls calls;
  EXPECT_FALSE(cuda.devices().empty());
  for (const std::string& name : calls.names()) {
    EXPECT_NE(name, "cudaSetDevice");
    EXPECT_NE(name, "cudaMemGetInfo");
  }
}

TEST(Stream, CopiesAndZeroesOnItsDevice) {
  Stream& stream = test_stream();
  const ArenaKind kind = stream.memory();
  for (const int64_t bytes : {0, 1, 255, 1 << 20}) {
    const Arena first("first", bytes + 256, kind);
    const Arena second("second", bytes + 256, kind);
    std::vector<char> from(static_cast<size_t>(bytes));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + 3);
    std::vector<char> back(from.size() + 1, 'x');
    stream.transfer(first.data(), from.data(), bytes);
    stream.transfer(second.data(), first.data(), bytes);
    stream.zero(first.data(), bytes / 2);
    stream.transfer(back.data(), second.data(), bytes);
    stream.synchronize();
    EXPECT_TRUE(std::equal(from.begin(), from.end(), back.begin()));
    EXPECT_EQ(back.back(), 'x');
    stream.transfer(back.data(), first.data(), bytes);
    stream.synchronize();
    for (int64_t i = 0; i < bytes; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(back[at], i < bytes / 2 ? 0 : from[at]) << i;
    }
  }
}

// Pageable memory may be reused as soon as the call returns.
TEST(Stream, CopyOfPageableMemoryReturnsWhenItMayBeReused) {
  const std::unique_ptr<Stream> stream = test_backend().make_stream({.threads = 1});
  constexpr size_t kBytes = size_t{64} << 20;
  const Arena there("there", kBytes, stream->memory());
  std::vector<char> here(kBytes, 'x');
  stream->transfer(there.data(), here.data(), kBytes);
  std::fill(here.begin(), here.end(), 'y');
  std::vector<char> back(kBytes, 'z');
  stream->transfer(back.data(), there.data(), kBytes);
  EXPECT_EQ(back, std::vector<char>(kBytes, 'x'));
}

TEST(Stream, ReachWaitsForTheMark) {
  Stream& stream = test_stream();
  stream.reach(2);  // never marked
  TestValue<double> total(0);
  const TestMatrix x = zero_vector(1000).fill(0.5);
  stream.ops().sum(stream, {.x = x, .total = total.data()});
  stream.mark(2);
  stream.reach(2);
  EXPECT_EQ(total.value(), 500);
}

// An asynchronous stream captures the enqueued work and replays it, with the contents that the
// operands have at the time of the replay.
TEST(Stream, ReplaysWithCurrentContents) {
  const std::unique_ptr<Stream> stream = test_backend().make_stream({.threads = 1});
  TestMatrix x = zero_vector(300).fill(1);
  TestValue<double> total(0);
  int called = 0;
  const auto work = [&] {
    ++called;
    stream->ops().sum(*stream, {.x = x, .accumulate = true, .total = total.data()});
  };
  work();  // warm-up: allocations happen outside of the capture
  for (int i = 0; i < 3; ++i) stream->replay(5, work);
  stream->synchronize();
  EXPECT_EQ(total.value(), 4 * 300);
  x.fill(2);
  stream->replay(5, work);
  stream->synchronize();
  EXPECT_EQ(total.value(), 6 * 300);
  EXPECT_EQ(called, stream->replays() ? 2 : 5);
  stream->forget(5);
}

}  // namespace
}  // namespace tutti::engine::testing
