// That NCCL on the host refuses what a GPU's would, or would leave undefined.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <string>
#include <thread>

namespace tutti::comm {
namespace {

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

// Two ranks in one thread, each with a device, a stream and a pinned number.
class NcclOnHost : public ::testing::Test {
 protected:
  struct Rank {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    float* number = nullptr;
  };

  void meet(int device_of_second) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int i = 0; i < 2; ++i) {
      Rank& rank = ranks_.at(static_cast<size_t>(i));
      ASSERT_EQ(cudaSetDevice(i == 0 ? 0 : device_of_second), cudaSuccess)
          << "TUTTI_HOST_DEVICES must be 2 or more";
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ASSERT_EQ(ncclCommInitRankConfig(&rank.comm, 2, id, i, &config), ncclInProgress);
      ASSERT_EQ(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), cudaSuccess);
      void* memory = nullptr;
      ASSERT_EQ(cudaHostAlloc(&memory, sizeof(float), 0), cudaSuccess);
      rank.number = static_cast<float*>(memory);
      *rank.number = static_cast<float>(i + 1);
    }
  }
  void TearDown() override {
    for (const Rank& rank : ranks_) {
      if (rank.comm == nullptr) continue;
      ncclCommAbort(rank.comm);
      EXPECT_EQ(cudaStreamDestroy(rank.stream), cudaSuccess);
      EXPECT_EQ(cudaFreeHost(rank.number), cudaSuccess);
    }
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }

  static ncclResult_t sum(const Rank& rank, float* data, cudaStream_t stream) {
    return ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comm, stream);
  }
  static ncclResult_t sum(const Rank& rank) { return sum(rank, rank.number, rank.stream); }
  static void expect_refused(ncclResult_t found, ncclResult_t expected, const char* why) {
    EXPECT_EQ(found, expected);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(why), std::string::npos)
        << ncclGetLastError(nullptr);
  }
  void start_both() {
    EXPECT_EQ(sum(first()), ncclInProgress);
    EXPECT_EQ(sum(second()), ncclInProgress);
    EXPECT_EQ(state_of(first().comm), ncclSuccess);
  }

  const Rank& first() const { return ranks_[0]; }
  const Rank& second() const { return ranks_[1]; }

 private:
  std::array<Rank, 2> ranks_;
};

TEST_F(NcclOnHost, IsDoneWhenItsStreamIsWaitedForAndNotBefore) {
  meet(1);
  start_both();
  EXPECT_EQ(*first().number, 1);
  EXPECT_EQ(cudaStreamSynchronize(second().stream), cudaSuccess);
  EXPECT_EQ(*second().number, 3);
  EXPECT_EQ(cudaStreamSynchronize(first().stream), cudaSuccess);
  EXPECT_EQ(*first().number, 3);
}

TEST_F(NcclOnHost, ADeviceOfTwoRanksIsRefused) {
  meet(0);
  EXPECT_EQ(state_of(first().comm), ncclInvalidUsage);
  expect_refused(sum(first()), ncclInvalidUsage, "same device");
}

TEST_F(NcclOnHost, ACommunicatorTakesNoCallWhileOneIsUnderWay) {
  meet(1);
  EXPECT_EQ(sum(first()), ncclInProgress);
  EXPECT_EQ(state_of(first().comm), ncclInProgress);
  expect_refused(sum(first()), ncclInvalidUsage, "under way");
  EXPECT_EQ(sum(second()), ncclInProgress);
  EXPECT_EQ(state_of(first().comm), ncclSuccess);
  EXPECT_EQ(sum(first()), ncclSuccess);
}

TEST_F(NcclOnHost, MemoryThatNoDeviceReachesIsRefused) {
  meet(1);
  float on_stack = 0;
  expect_refused(sum(first(), &on_stack, first().stream), ncclInvalidArgument, "no device reaches");
}

TEST_F(NcclOnHost, AStreamOfAnotherDeviceIsRefused) {
  meet(1);
  expect_refused(sum(first(), first().number, second().stream), ncclInvalidArgument,
                 "another device");
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, second().stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, first().stream), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second().stream, event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(NcclOnHost, ACapturedStreamIsRefused) {
  meet(1);
  start_both();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(first().stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  expect_refused(sum(first()), ncclInvalidUsage, "captured");
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(first().stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(NcclOnHost, OneThatIsNotFinalizedIsNotDestroyed) {
  meet(1);
  start_both();
  expect_refused(ncclCommDestroy(first().comm), ncclInvalidUsage, "finalized");
  EXPECT_EQ(ncclCommFinalize(first().comm), ncclInProgress);
  expect_refused(sum(first()), ncclInvalidUsage, "under way");
  EXPECT_EQ(state_of(first().comm), ncclInProgress);  // asked, its streams go on
  EXPECT_EQ(state_of(first().comm), ncclSuccess);
  expect_refused(sum(first()), ncclInvalidUsage, "finalized");
  EXPECT_EQ(ncclCommDestroy(first().comm), ncclSuccess);
}

using NcclOnHostDeathTest = NcclOnHost;

TEST_F(NcclOnHostDeathTest, RanksThatCallDifferentThingsEndTheProcess) {
  meet(1);
  start_both();
  EXPECT_EQ(sum(first()), ncclSuccess);
  EXPECT_DEATH(ncclBroadcast(second().number, second().number, 1, ncclFloat32, 0, second().comm,
                             second().stream),
               "ranks call different things");
}

}  // namespace
}  // namespace tutti::comm
