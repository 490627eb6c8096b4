#include "tutti/comm/nccl_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/engine/device_calls.h"

namespace tutti::comm {

void check_cuda(cudaError_t result, const char* what) {
  engine::note_device_call(what);
  if (result != cudaSuccess) {
    fail(ErrorKind::unsupported, "{}: {}", what, cudaGetErrorString(result));
  }
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    default: TUTTI_CHECK(false, "{} is no type of collectives", dtype_name(dtype));
  }
}

std::mutex& nccl_turn() {
  static std::mutex turn;
  return turn;
}

NcclLane::NcclLane(std::string name, std::string key, int rank, int size)
    : name_(std::move(name)), key_(std::move(key)), rank_(rank), size_(size) {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  for (cudaEvent_t& event : events_) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
}

NcclLane::~NcclLane() {
  abort();
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

bool NcclLane::connect(Store& store) {
  if (connected_) return true;
  if (communicator_ == nullptr) {
    if (rank_ == 0) {
      issue([&] { return ncclGetUniqueId(&id_); });
      store.set(key_, std::string(id_.internal, sizeof id_.internal));
    } else {
      const std::vector<std::string> keys = store.list(key_);
      if (std::find(keys.begin(), keys.end(), key_) == keys.end()) return false;
      const std::string text = store.get(key_, 1);
      TUTTI_CHECK(text.size() == sizeof id_.internal, "NCCL id of {} bytes", text.size());
      std::memcpy(id_.internal, text.data(), text.size());
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = name_.c_str();
#endif
    issue([&] { return ncclCommInitRankConfig(&communicator_, size_, id_, rank_, &config); });
  }
  connected_ = !is_busy();
  return connected_;
}

ncclResult_t NcclLane::state() const {
  const std::lock_guard turn(nccl_turn());
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
  return asked == ncclSuccess ? state : asked;
}

bool NcclLane::is_busy() const {
  const ncclResult_t now = state();
  check(now);
  return now == ncclInProgress;
}

void NcclLane::check(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(ErrorKind::peer, "{}: NCCL: {} ({})", name_, ncclGetErrorString(result),
       ncclGetLastError(communicator_));
}

std::string NcclLane::failure() const {
  if (communicator_ == nullptr) return "";
  const ncclResult_t now = state();
  if (now == ncclSuccess || now == ncclInProgress) return "";
  return fmt::format("{}: NCCL: {} ({})", name_, ncclGetErrorString(now),
                     ncclGetLastError(communicator_));
}

void NcclLane::after(cudaEvent_t event) const {
  check_cuda(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent");
}

void NcclLane::mark(uint64_t number) {
  check_cuda(cudaEventRecord(events_[number % kEvents], stream_), "cudaEventRecord");
}

void NcclLane::begin_end() {
  if (communicator_ == nullptr || !connected_) return;
  const std::lock_guard turn(nccl_turn());
  ncclCommFinalize(communicator_);
}

void NcclLane::end(double deadline_seconds) {
  if (communicator_ == nullptr) return;
  ncclResult_t now = connected_ ? state() : ncclInternalError;
  while (now == ncclInProgress && monotonic_seconds() < deadline_seconds) {
    sleep_seconds(1e-4);
    now = state();
  }
  if (now != ncclSuccess) return abort();
  const std::lock_guard turn(nccl_turn());
  ncclCommDestroy(std::exchange(communicator_, nullptr));
}

void NcclLane::abort() {
  if (communicator_ == nullptr) return;
  const std::lock_guard turn(nccl_turn());
  ncclCommAbort(std::exchange(communicator_, nullptr));
}

}  // namespace tutti::comm
