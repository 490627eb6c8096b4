// A communicator of NCCL with a stream of its own: what is given to it is done in order, beside
// everything else. Only for sources that are built where NCCL is.
//
// Communicators are non-blocking: a call may still be at work when it returns, and then nothing
// else may be asked of the communicator until state() is no longer ncclInProgress. NCCL wants one
// call of a process at a time, on whatever communicator (NCCL user guide, "Thread Safety"), so each
// is made in nccl_turn().
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "tutti/base/dtype.h"
#include "tutti/comm/store.h"

namespace tutti::comm {

void check_cuda(cudaError_t result, const char* what);
ncclDataType_t nccl_type(DType dtype);
std::mutex& nccl_turn();

class NcclLane {
 public:
  // `key`: under which rank 0 of the communicator leaves its id in the store. On the device that is
  // current, as all of this.
  NcclLane(std::string name, std::string key, int rank, int size);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  // One step towards the other ranks, without waiting for them: true when all are there. Throws
  // peer when NCCL fails.
  bool connect(Store& store);
  // Of the last call. Throws peer when it failed.
  bool is_busy() const;
  // Makes a call: `body` returns its result. Throws peer when that is an error.
  template <typename Body>
  void issue(const Body& body) {
    const std::lock_guard turn(nccl_turn());
    check(body());
  }

  // What is enqueued on the lane from now on comes after `event`.
  void after(cudaEvent_t event) const;
  // The lane has come this far with call `number`, counted from 1.
  void mark(uint64_t number);
  // Of that call, or a later one, which comes after it on the same stream.
  cudaEvent_t event_of(uint64_t number) const { return events_[number % kEvents]; }

  // The end, for all lanes of a rank one after the other: each flushes what was issued, with the
  // other ranks, in whatever order they come; then each is waited for until the deadline.
  void begin_end();
  void end(double deadline_seconds);
  // At once, whatever it does.
  void abort();

  const std::string& name() const { return name_; }
  ncclComm_t communicator() const { return communicator_; }
  cudaStream_t stream() const { return stream_; }
  // What is wrong with it, in NCCL's words; empty: nothing.
  std::string failure() const;

 private:
  static constexpr uint64_t kEvents = 256;  // calls whose tickets are told apart
  void check(ncclResult_t result) const;
  ncclResult_t state() const;

  std::string name_, key_;
  int rank_, size_;
  bool connected_ = false;
  ncclUniqueId id_ = {};
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_ = {};
};

}  // namespace tutti::comm
