#include "tutti/comm/nccl/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/engine/device_calls.h"

namespace tutti::comm {
namespace {

// A call is launched in less than a millisecond.
constexpr std::chrono::milliseconds kTurnPatience{250};
constexpr double kLookSeconds = 1e-3;

}  // namespace

void check_cuda(cudaError_t result, const char* what) {
  engine::note_device_call(what);
  if (result != cudaSuccess) {
    fail(ErrorKind::unsupported, "{}: {}", what, cudaGetErrorString(result));
  }
}

std::timed_mutex& nccl_turn(int device) {
  // Never destroyed: a thread that NCCL does not let go may hold one when the process ends.
  static auto& turns = *new std::map<int, std::timed_mutex>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return turns[device];
}

bool run_within(double seconds, int device, std::function<void()> body) {
  std::packaged_task<void()> task([device, body = std::move(body)] {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    body();
  });
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    thread.detach();
    return false;
  }
  thread.join();
  done.get();
  return true;
}

NcclLane::NcclLane(Options options) : options_(std::move(options)) {
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

// Rank 0 gives the id when all have arrived, so that no rank waits in NCCL for one that never does.
void NcclLane::connect(Store& store, double deadline_seconds) {
  const auto left = [&] { return std::max(0.0, deadline_seconds - monotonic_seconds()); };
  ncclUniqueId id = {};
  if (options_.rank == 0) {
    for (int other = 1; other < options_.size; ++other) {
      store.get(fmt::format("{}/here/{}", options_.key, other), left());
    }
    check(ncclGetUniqueId(&id));
    store.set(options_.key + "/id", std::string(id.internal, sizeof id.internal));
  } else {
    store.set(fmt::format("{}/here/{}", options_.key, options_.rank), "1");
    const std::string text = store.get(options_.key + "/id", left());
    TUTTI_CHECK(text.size() == sizeof id.internal, "NCCL id of {} bytes", text.size());
    std::memcpy(id.internal, text.data(), text.size());
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
  if (options_.most_blocks > 0) config.maxCTAs = options_.most_blocks;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = options_.name.c_str();
#endif
  // Not in the device's turn: it launches nothing, and may wait for a rank that was lost.
  ncclComm_t communicator = nullptr;
  check(ncclCommInitRankConfig(&communicator, options_.size, id, options_.rank, &config));
  communicator_.store(communicator);
}

void NcclLane::begin_launch() { launching_since_.store(monotonic_seconds()); }
void NcclLane::end_launch() { launching_since_.store(0); }

double NcclLane::launching_seconds() const {
  const double since = launching_since_.load();
  return since == 0 ? 0 : monotonic_seconds() - since;
}

// The communicator may be gone: NCCL does not look at it for its last words.
void NcclLane::check(ncclResult_t result) const {
  if (result == ncclSuccess) return;
  fail(ErrorKind::peer, "{}: NCCL: {} ({})", options_.name, ncclGetErrorString(result),
       ncclGetLastError(nullptr));
}

void NcclLane::fail_aborted() const { fail(ErrorKind::peer, "{}: it was aborted", options_.name); }

std::string NcclLane::failure() const {
  const std::unique_lock turn(nccl_turn(options_.device), std::try_to_lock);
  const ncclComm_t communicator = communicator_.load();
  if (!turn.owns_lock() || communicator == nullptr) return "";
  ncclResult_t now = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator, &now);
  if (asked != ncclSuccess) now = asked;
  if (now == ncclSuccess) return "";
  return fmt::format("{}: NCCL: {} ({})", options_.name, ncclGetErrorString(now),
                     ncclGetLastError(nullptr));
}

void NcclLane::after(cudaEvent_t event) const {
  check_cuda(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent");
}

uint64_t NcclLane::mark() {
  const uint64_t number = ++calls_;
  check_cuda(cudaEventRecord(events_[number % kEvents], stream_), "cudaEventRecord");
  return number;
}

void NcclLane::end(double deadline_seconds) {
  if (communicator_.load() == nullptr) return;
  const cudaEvent_t last = event_of(mark());
  while (cudaEventQuery(last) == cudaErrorNotReady) {
    if (monotonic_seconds() > deadline_seconds) return abort();
    sleep_seconds(kLookSeconds);
  }
  const std::lock_guard turn(nccl_turn(options_.device));
  const ncclComm_t communicator = communicator_.load();
  if (communicator == nullptr) return;
  begin_launch();
  ncclCommFinalize(communicator);
  end_launch();
  // Null where it was aborted meanwhile.
  if (ncclComm_t ended = communicator_.exchange(nullptr); ended != nullptr) ncclCommDestroy(ended);
}

void NcclLane::abort() {
  const std::unique_lock turn(nccl_turn(options_.device), kTurnPatience);
  const ncclComm_t communicator = communicator_.exchange(nullptr);
  if (communicator != nullptr) ncclCommAbort(communicator);
}

}  // namespace tutti::comm
