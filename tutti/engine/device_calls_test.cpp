#include "tutti/engine/device_calls.h"

#include <gtest/gtest.h>

#include <thread>

#include "tutti/engine/stream.h"

namespace tutti::engine {
namespace {

using Names = std::vector<std::string>;

TEST(DeviceCalls, CollectsCallsOfThisThreadWhileInScope) {
  note_device_call("out of scope");
  EXPECT_FALSE(device_calls_are_noted());
  const DeviceCalls outer;
  note_device_call("cudaLaunchKernelEx");
  {
    const DeviceCalls inner;
    note_device_call("cudaStreamSynchronize");
    EXPECT_EQ(inner.names(), Names{"cudaStreamSynchronize"});
  }
  std::thread([] {
    EXPECT_FALSE(device_calls_are_noted());
    note_device_call("another thread's");
  }).join();
  note_device_call("cudaMemcpyAsync");
  EXPECT_EQ(outer.names(), (Names{"cudaLaunchKernelEx", "cudaMemcpyAsync"}));
  EXPECT_TRUE(outer.waits().empty());
}

TEST(DeviceCalls, DistinguishesCallsInWhichTheHostWaits) {
  for (const char* name :
       {"synchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
        "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaMemcpy", "cudaMemset",
        "cudaMemcpyAsync of pageable memory"}) {
    EXPECT_TRUE(host_waits_in(name)) << name;
  }
  for (const char* name :
       {"cudaMemcpyAsync", "cudaMemsetAsync", "cudaMallocAsync", "cudaFreeAsync", "cudaGraphLaunch",
        "cudaLaunchKernelEx", "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamBeginCapture"}) {
    EXPECT_FALSE(host_waits_in(name)) << name;
  }
}

TEST(DeviceCalls, CollectsCallsOfCpuStreams) {
  const auto stream = make_cpu_stream(1);
  const DeviceCalls calls;
  stream->zero(nullptr, 0);
  EXPECT_TRUE(calls.waits().empty());
  stream->synchronize();
  EXPECT_EQ(calls.waits(), Names{"synchronize"});
}

}  // namespace
}  // namespace tutti::engine
