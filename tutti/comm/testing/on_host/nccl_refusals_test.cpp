// That NCCL on the host refuses what a GPU's would, or would leave undefined, and starts calls in
// the order in which they were launched.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace tutti::comm {
namespace {

// Two ranks, each with a device, streams and pinned numbers, on two communicators.
class NcclOnHost : public ::testing::Test {
 protected:
  static constexpr size_t kComms = 2;
  struct Rank {
    int number = 0, device = 0;
    std::array<ncclComm_t, kComms> comms = {};
    std::array<cudaStream_t, kComms> streams = {};
    std::array<float*, kComms> data = {};
    ncclResult_t met = ncclSuccess;
  };

  // body(rank) on a thread of each, whose device is current: calls that wait for both.
  template <typename Body>
  void on_both(const Body& body) {
    std::array<std::thread, 2> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.at(i) = std::thread([&body, &rank = ranks_.at(i)] {
        EXPECT_EQ(cudaSetDevice(rank.device), cudaSuccess);
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void meet(int device_of_second) {
    for (size_t comm = 0; comm < kComms; ++comm) {
      ncclUniqueId id;
      ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      ranks_[1].number = 1;
      ranks_[1].device = device_of_second;
      on_both([&](Rank& rank) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        rank.met = ncclCommInitRankConfig(&rank.comms.at(comm), 2, id, rank.number, &config);
        EXPECT_EQ(cudaStreamCreateWithFlags(&rank.streams.at(comm), cudaStreamNonBlocking),
                  cudaSuccess);
        void* memory = nullptr;
        EXPECT_EQ(cudaHostAlloc(&memory, sizeof(float), 0), cudaSuccess);
        rank.data.at(comm) = static_cast<float*>(memory);
        *rank.data.at(comm) = static_cast<float>(rank.number + 1);
      });
    }
  }
  void TearDown() override {
    for (const Rank& rank : ranks_) {
      for (const ncclComm_t comm : rank.comms) {
        if (comm != nullptr) ncclCommAbort(comm);
      }
      for (const cudaStream_t stream : rank.streams) {
        if (stream == nullptr) continue;
        EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
      }
      for (float* const data : rank.data) EXPECT_EQ(cudaFreeHost(data), cudaSuccess);
    }
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }

  static ncclResult_t sum(const Rank& rank, float* data, cudaStream_t stream) {
    return ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, rank.comms[0], stream);
  }
  static ncclResult_t sum(const Rank& rank, size_t comm = 0) {
    return ncclAllReduce(rank.data.at(comm), rank.data.at(comm), 1, ncclFloat32, ncclSum,
                         rank.comms.at(comm), rank.streams.at(comm));
  }
  static ncclResult_t send(const Rank& rank, size_t comm) {
    return ncclSend(rank.data.at(comm), 1, ncclFloat32, 1 - rank.number, rank.comms.at(comm),
                    rank.streams.at(comm));
  }
  static ncclResult_t receive(const Rank& rank, size_t comm) {
    return ncclRecv(rank.data.at(comm), 1, ncclFloat32, 1 - rank.number, rank.comms.at(comm),
                    rank.streams.at(comm));
  }
  static void expect_refused(ncclResult_t found, ncclResult_t expected, const char* why) {
    EXPECT_EQ(found, expected);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(why), std::string::npos)
        << ncclGetLastError(nullptr);
  }
  void start_both(size_t comm = 0) {
    on_both([comm](const Rank& rank) { EXPECT_EQ(sum(rank, comm), ncclSuccess); });
  }
  static bool is_done(const Rank& rank, size_t comm) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaSetDevice(rank.device), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, rank.streams.at(comm)), cudaSuccess);
    bool done = false;
    for (int i = 0; i < 100 && !done; ++i) done = cudaEventQuery(event) == cudaSuccess;
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    return done;
  }

  const Rank& first() const { return ranks_[0]; }
  const Rank& second() const { return ranks_[1]; }

 private:
  std::array<Rank, 2> ranks_;
};

TEST_F(NcclOnHost, CompletesWhenItsStreamIsSynchronized) {
  meet(1);
  start_both();
  EXPECT_EQ(*first().data[0], 1);
  EXPECT_EQ(cudaStreamSynchronize(second().streams[0]), cudaSuccess);
  EXPECT_EQ(*second().data[0], 3);
  EXPECT_EQ(cudaStreamSynchronize(first().streams[0]), cudaSuccess);
  EXPECT_EQ(*first().data[0], 3);
}

TEST_F(NcclOnHost, ADeviceOfTwoRanksIsRefused) {
  meet(0);
  EXPECT_EQ(first().met, ncclInvalidUsage);
  EXPECT_EQ(first().comms[0], nullptr);
}

// The first call of a kind waits for the other rank's, later ones do not.
TEST_F(NcclOnHost, TheFirstCallConnects) {
  meet(1);
  std::atomic<bool> has_come{false};
  on_both([&](const Rank& rank) {
    if (rank.number == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      has_come.store(true);
    }
    EXPECT_EQ(sum(rank), ncclSuccess);
    EXPECT_TRUE(has_come.load());
  });
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(sum(first()), ncclSuccess);
}

// While one thread is in a call, another one launches on the same device.
TEST_F(NcclOnHost, TwoThreadsThatLaunchOnADeviceAreRefused) {
  meet(1);
  std::thread connecting([&] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    ncclResult_t made = ncclInvalidUsage;
    while (made == ncclInvalidUsage) made = sum(first(), 0);  // the other one may be in a call
    EXPECT_EQ(made, ncclSuccess);
  });
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  float on_stack = 0;  // for which it is refused when no other thread is in a call
  ncclResult_t found = ncclInvalidArgument;
  while (found == ncclInvalidArgument) found = sum(first(), &on_stack, first().streams[0]);
  expect_refused(found, ncclInvalidUsage, "two threads");
  expect_refused(send(first(), 1), ncclInvalidUsage, "two threads");
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(sum(second(), 0), ncclSuccess);
  connecting.join();
}

TEST_F(NcclOnHost, AnAbortEndsACallThatConnects) {
  meet(1);
  std::thread connecting([&] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(sum(first()), ncclInternalError);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ncclCommAbort(first().comms[0]), ncclSuccess);
  connecting.join();
}

// A receive whose message comes late keeps back what was launched after it, on any communicator.
TEST_F(NcclOnHost, CallsStartInOrder) {
  meet(1);
  on_both([](const Rank& rank) {  // connect
    EXPECT_EQ(rank.number == 0 ? receive(rank, 0) : send(rank, 0), ncclSuccess);
    EXPECT_EQ(sum(rank, 1), ncclSuccess);
  });
  EXPECT_TRUE(is_done(first(), 1));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(receive(first(), 0), ncclSuccess);
  EXPECT_EQ(receive(first(), 0), ncclSuccess);  // starts when the first is done
  EXPECT_EQ(sum(first(), 1), ncclSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(sum(second(), 1), ncclSuccess);
  EXPECT_FALSE(is_done(second(), 1));
  EXPECT_EQ(send(second(), 0), ncclSuccess);
  EXPECT_TRUE(is_done(second(), 1));
  EXPECT_EQ(send(second(), 0), ncclSuccess);
  EXPECT_TRUE(is_done(first(), 0));
}

TEST_F(NcclOnHost, MemoryThatNoDeviceReachesIsRefused) {
  meet(1);
  float on_stack = 0;
  expect_refused(sum(first(), &on_stack, first().streams[0]), ncclInvalidArgument,
                 "no device reaches");
}

TEST_F(NcclOnHost, AStreamOfAnotherDeviceIsRefused) {
  meet(1);
  expect_refused(sum(first(), first().data[0], second().streams[0]), ncclInvalidArgument,
                 "another device");
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, second().streams[0]), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, first().streams[0]), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second().streams[0], event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(NcclOnHost, ACapturedStreamIsRefused) {
  meet(1);
  start_both();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(first().streams[0], cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  expect_refused(sum(first()), ncclInvalidUsage, "captured");
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(first().streams[0], &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(NcclOnHost, UnfinalizedCommunicatorsAreNotDestroyed) {
  meet(1);
  start_both();
  expect_refused(ncclCommDestroy(first().comms[0]), ncclInvalidUsage, "finalized");
  EXPECT_EQ(ncclCommFinalize(first().comms[0]), ncclSuccess);
  EXPECT_EQ(*first().data[0], 3);  // it has waited
  expect_refused(sum(first()), ncclInvalidUsage, "finalized");
  EXPECT_EQ(ncclCommDestroy(first().comms[0]), ncclSuccess);
}

using NcclOnHostDeathTest = NcclOnHost;

TEST_F(NcclOnHostDeathTest, MismatchedCallsAbort) {
  meet(1);
  start_both();
  EXPECT_EQ(sum(first()), ncclSuccess);
  EXPECT_DEATH(ncclBroadcast(second().data[0], second().data[0], 1, ncclFloat32, 0,
                             second().comms[0], second().streams[0]),
               "ranks call different things");
}

TEST_F(NcclOnHostDeathTest, MismatchedLaunchOrdersAbort) {
  meet(1);
  start_both(0);
  start_both(1);
  EXPECT_EQ(sum(first(), 0), ncclSuccess);
  EXPECT_EQ(sum(first(), 1), ncclSuccess);
  EXPECT_DEATH(sum(second(), 1), "devices launch in different orders");
}

}  // namespace
}  // namespace tutti::comm
