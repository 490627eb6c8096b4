// The host stand-in of a device detects errors that would break on a GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace tutti::engine::on_host {
namespace {

class OnHost : public ::testing::Test {
 protected:
  OnHost() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~OnHost() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  template <typename... Parameters, typename... Arguments>
  cudaError_t start(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream_;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }
  void wait() { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

  cudaStream_t stream_ = nullptr;
};

void number(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[at] += static_cast<int>(at);
}

TEST_F(OnHost, EveryThreadOfEveryBlockRunsOnce) {
  const dim3 grid(3, 2, 2);
  const dim3 block(5, 7, 3);
  std::vector<int> out(grid.count() * block.count());
  EXPECT_EQ(start(number, grid, block, out.data()), cudaSuccess);
  wait();
  std::vector<int> expected(out.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(out, expected);
}

template <bool with_barrier>
void turn_around(int* out) {
  __shared__ int values[100];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
  if (with_barrier) __syncthreads();
  values[threadIdx.x] = -1;
}

// Twice, because the second launch runs threads in the reverse order.
TEST_F(OnHost, DetectsAMissingBarrier) {
  std::vector<int> expected(100);
  std::iota(expected.rbegin(), expected.rend(), 0);
  for (int i = 0; i < 2; ++i) {
    std::vector<int> good(100);
    std::vector<int> bad(100);
    start(turn_around<true>, 1, 100, good.data());
    start(turn_around<false>, 1, 100, bad.data());
    wait();
    EXPECT_EQ(good, expected);
    EXPECT_NE(bad, expected);
  }
}

void exchange_all(int* sums, unsigned* even) {
  const unsigned thread = threadIdx.x;
  if (thread == 33) return;  // in the second warp, which has 8 lanes
  int sum = static_cast<int>(thread);
  for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, apart);
  sums[thread] = sum;
  even[thread] = __ballot_sync(0xffffffffU, thread % 2 == 0);
  sums[thread] += 1000 * __shfl_up_sync(0xffffffffU, static_cast<int>(thread), 2);
}

TEST_F(OnHost, LanesExchange) {
  for (int i = 0; i < 2; ++i) {
    std::vector<int> sums(40);
    std::vector<unsigned> even(40);
    start(exchange_all, 1, 40, sums.data(), even.data());
    wait();
    EXPECT_EQ(sums[5], 28 + 3000);      // 0 + ... + 7
    EXPECT_EQ(sums[31], 220 + 29'000);  // 24 + ... + 31
    EXPECT_EQ(even[31], 0x55555555U);
    EXPECT_EQ(even[39], 0x55U);
  }
}

void diverge(int /*unused*/) {
  if (threadIdx.x < 5) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

TEST_F(OnHost, DivergentBarriersAbort) {
  EXPECT_DEATH(
      {
        start(diverge, 1, 32, 0);
        wait();
      },
      "waits for lanes that are at the block's barrier");
}

TEST_F(OnHost, InvalidLaunchesFail) {
  EXPECT_EQ(start(diverge, 1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(diverge, dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
  cudaLaunchConfig_t config = {};
  config.blockDim = 32;
  config.dynamicSmemBytes = 50 << 10;
  config.stream = stream_;
  EXPECT_EQ(cudaLaunchKernelEx(&config, diverge, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(OnHost, WorkRunsOnlyWhenAThreadWaits) {
  int value = 0;
  enqueue(stream_, [&] { value = 1; });
  EXPECT_EQ(value, 0);
  wait();
  EXPECT_EQ(value, 1);
}

TEST_F(OnHost, EventsOrderStreams) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&event);
  std::vector<int> order;
  enqueue(stream_, [&] { order.push_back(1); });
  cudaEventRecord(event, stream_);
  enqueue(stream_, [&] { order.push_back(3); });
  cudaStreamWaitEvent(other, event, cudaEventWaitDefault);
  enqueue(other, [&] { order.push_back(2); });
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  cudaStreamSynchronize(other);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  cudaEventDestroy(event);
  cudaStreamDestroy(other);
}

TEST_F(OnHost, GraphsReplayCapturedWork) {
  cudaStream_t other = nullptr;
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&fork);
  cudaEventCreate(&join);
  std::vector<int> order;
  for (const bool joins : {false, true}) {
    cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    enqueue(stream_, [&] { order.push_back(1); });
    cudaEventRecord(fork, stream_);
    cudaStreamWaitEvent(other, fork, cudaEventWaitDefault);
    enqueue(other, [&] { order.push_back(2); });
    cudaEventRecord(join, other);
    if (joins) cudaStreamWaitEvent(stream_, join, cudaEventWaitDefault);
    // Not allowed during capture.
    void* data = nullptr;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaMalloc(&data, 1), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph),
              joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (!joins) continue;
    cudaGraphExec_t executable = nullptr;
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    wait();
    EXPECT_TRUE(order.empty());
    for (int i = 0; i < 2; ++i) cudaGraphLaunch(executable, stream_);
    wait();
    cudaGraphExecDestroy(executable);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 1, 2}));
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
  cudaStreamDestroy(other);
}

TEST_F(OnHost, HostCannotAccessDeviceMemory) {
  int* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 100 * sizeof(int)), cudaSuccess);
  std::vector<int> back(100);
  cudaMemset(data, 0, 100 * sizeof(int));
  start(number, 10, 10, data);
  cudaMemcpyAsync(back.data(), data, 100 * sizeof(int), cudaMemcpyDefault, stream_);
  wait();
  EXPECT_EQ(back[99], 99);
  EXPECT_DEATH(data[3] = 1, "");
  cudaPointerAttributes attributes = {};
  cudaPointerGetAttributes(&attributes, data + 99);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  cudaPointerGetAttributes(&attributes, back.data());
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

}  // namespace
}  // namespace tutti::engine::on_host
