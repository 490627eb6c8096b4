#include "tutti/comm/nccl_group.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/engine/device_calls.h"
#include "tutti/engine/device_stream.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kEvents = 256;  // calls of a lane whose tickets are told apart
constexpr double kWatchSeconds = 0.05;
constexpr int kStoreLooks = 20;  // watches per look into the store

void check_cuda(cudaError_t result, const char* what) {
  engine::note_device_call(what);
  if (result != cudaSuccess) {
    fail(ErrorKind::unsupported, "{}: {}", what, cudaGetErrorString(result));
  }
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    default: TUTTI_CHECK(false, "{} is no type of collectives", dtype_name(dtype));
  }
}

// A communicator with its stream: one for collectives, one for messages, so that neither waits for
// the other.
struct Lane {
  ncclComm_t communicator = nullptr;
  std::string name;  // in NCCL's own messages
  cudaStream_t stream = nullptr;
  uint64_t number = 0;  // of the last call
  std::array<cudaEvent_t, kEvents> events = {};
};

struct Message {
  Call call;
  uint64_t number = 0;
};

class NcclGroup : public Group {
 public:
  NcclGroup(GroupInfo info, std::shared_ptr<Store> store, const std::string& prefix, int device,
            double timeout_seconds)
      : Group(std::move(info)),
        store_(std::move(store)),
        prefix_(prefix),
        device_(device),
        timeout_seconds_(timeout_seconds) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaMalloc(&barrier_word_, sizeof(int32_t)), "cudaMalloc");
    check_cuda(cudaMemset(barrier_word_, 0, sizeof(int32_t)), "cudaMemset");
    check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
    for (const char* name : {"collectives", "messages"}) {
      start(lanes_[name[0] == 'm' ? 1 : 0], name, timeout_seconds);
    }
    watcher_ = std::thread([this] { watch(); });
  }

  ~NcclGroup() override {
    closing_.store(true);
    watcher_.join();
    const std::lock_guard lock(mutex_);
    if (cudaSetDevice(device_) != cudaSuccess) return;
    for (Lane& lane : lanes_) {
      if (lane.communicator != nullptr) {
        // Finalize flushes what was issued; it is non-blocking here, so its end is polled.
        // It waits for the other ranks, of which one may have vanished.
        ncclCommFinalize(lane.communicator);
        ncclResult_t state = ncclInProgress;
        const double end = monotonic_seconds() + timeout_seconds_;
        while (ncclCommGetAsyncError(lane.communicator, &state) == ncclSuccess &&
               state == ncclInProgress && monotonic_seconds() < end) {
          sleep_seconds(1e-4);
        }
        state == ncclSuccess ? ncclCommDestroy(lane.communicator)
                             : ncclCommAbort(lane.communicator);
      }
      for (const cudaEvent_t event : lane.events) cudaEventDestroy(event);
      cudaStreamDestroy(lane.stream);
    }
    cudaEventDestroy(ready_);
    cudaFree(barrier_word_);
  }

  std::vector<RankActivity> activity() const override {
    const std::lock_guard lock(mutex_);
    RankActivity self;
    self.rank = info().world_rank();
    self.calls = lanes_[0].number;
    self.last = last_;
    self.since_seconds = since_seconds_;
    self.inside = self.calls > 0 &&
                  cudaEventQuery(lanes_[0].events[self.calls % kEvents]) == cudaErrorNotReady;
    return {self};
  }

  void fail_with(const std::string& reason) override {
    std::string message;
    {
      const std::lock_guard lock(asked_mutex_);
      if (asked_.empty()) asked_ = reason;
      message = asked_;
    }
    is_failing_.store(true);  // a call that waits for NCCL to start it gives up, and the mutex
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return;
      failure_ = message;
      for (Lane& lane : lanes_) {
        if (lane.communicator != nullptr) ncclCommAbort(lane.communicator);
        lane.communicator = nullptr;
      }
    }
    try {
      store_->set(prefix_ + "/failure", message);
    } catch (const Error&) {
      // The store has gone with its rank; the others see their communicators fail.
    }
  }

 protected:
  bool takes_device_memory() const override { return true; }

  Ticket enqueue(engine::Stream& stream, const Call& call) override {
    Ticket ticket;
    guarded([&] { ticket = enqueue_locked(stream, call); });
    return ticket;
  }

  bool done(int32_t lane, uint64_t number) const override {
    // Whoever asks until it is done would ask forever about a message that nobody starts.
    if (lane == 1) const_cast<NcclGroup*>(this)->start_messages();
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return true;
    return cudaEventQuery(event_of(lane, number)) != cudaErrorNotReady;
  }

  void wait(engine::Stream& stream, int32_t lane, uint64_t number) override {
    guarded([&] {
      if (lane == 1) flush_messages();
      check_cuda(cudaStreamWaitEvent(stream_of(stream), event_of(lane, number), 0),
                 "cudaStreamWaitEvent");
    });
  }

 private:
  // Runs body() alone; throws what made the group fail, before or in it, and tells the world.
  template <typename Body>
  void guarded(const Body& body) {
    std::string message;
    {
      const std::lock_guard lock(mutex_);
      message = failure_;
      if (message.empty()) {
        try {
          body();
          return;
        } catch (const Error& error) {
          message = error.what();
        }
      }
    }
    fail_with(message);
    report_failure(message);
    throw Error(ErrorKind::peer, message);
  }

  cudaStream_t stream_of(engine::Stream& stream) const {
    auto* device = dynamic_cast<engine::DeviceStream*>(&stream);
    TUTTI_CHECK(device != nullptr, "group {}: not a stream of a GPU", name());
    return static_cast<cudaStream_t>(device->native_handle());
  }

  Ticket enqueue_locked(engine::Stream& stream, const Call& call) {
    const int32_t index = is_transfer(call.shape.kind) ? 1 : 0;
    Lane& lane = lanes_[static_cast<size_t>(index)];
    check_cuda(cudaEventRecord(ready_, stream_of(stream)), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(lane.stream, ready_, 0), "cudaStreamWaitEvent");
    const uint64_t number = ++lane.number;
    if (index == 1) {
      messages_.push_back({call, number});
      if (messages_.size() == kEvents / 2) flush_messages();
      return {this, index, number};
    }
    flush_messages();
    last_ = call.shape;
    since_seconds_ = monotonic_seconds();
    check_nccl(lane, launch(lane, call));
    check_cuda(cudaEventRecord(lane.events[number % kEvents], lane.stream), "cudaEventRecord");
    return {this, index, number};
  }

  // An event that serves a later call comes after this one on the same stream.
  cudaEvent_t event_of(int32_t lane, uint64_t number) const {
    return lanes_[static_cast<size_t>(lane)].events[number % kEvents];
  }

  // A non-blocking communicator may still be at work on the last call when it returns; nothing else
  // may be asked of it, and nothing is on the stream yet, until it is not.
  void check_nccl(const Lane& lane, ncclResult_t result) const {
    // It connects to ranks on the first call with them, and one that has vanished never answers.
    const double end = monotonic_seconds() + timeout_seconds_;
    while (result == ncclInProgress && !is_failing_.load() && monotonic_seconds() < end) {
      if (ncclCommGetAsyncError(lane.communicator, &result) != ncclSuccess) break;
    }
    if (result == ncclInProgress && is_failing_.load()) {
      const std::lock_guard lock(asked_mutex_);
      fail(ErrorKind::peer, "{}", asked_);
    }
    if (result == ncclInProgress) {
      fail(ErrorKind::peer, "group {}: NCCL has not started a call within {} s", name(),
           timeout_seconds_);
    }
    if (result != ncclSuccess) {
      fail(ErrorKind::peer, "group {}: NCCL: {} ({})", name(), ncclGetErrorString(result),
           ncclGetLastError(lane.communicator));
    }
  }

  void start(Lane& lane, const std::string& what, double timeout_seconds) {
    const std::string key = prefix_ + "/nccl/" + what;
    ncclUniqueId id;
    if (rank() == 0) {
      if (ncclGetUniqueId(&id) != ncclSuccess) {
        fail(ErrorKind::unsupported, "group {}: NCCL does not start: {}", name(),
             ncclGetLastError(nullptr));
      }
      store_->set(key, std::string(id.internal, sizeof id.internal));
    } else {
      const std::string text = store_->get(key, timeout_seconds);
      TUTTI_CHECK(text.size() == sizeof id.internal, "NCCL id of {} bytes", text.size());
      std::memcpy(id.internal, text.data(), text.size());
    }
    check_cuda(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    for (cudaEvent_t& event : lane.events) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    lane.name = name() + ", " + what;
    config.commName = lane.name.c_str();
#endif
    ncclResult_t state = ncclCommInitRankConfig(&lane.communicator, size(), id, rank(), &config);
    const double end = monotonic_seconds() + timeout_seconds;
    while (state == ncclInProgress && monotonic_seconds() < end) {
      sleep_seconds(1e-3);
      if (ncclCommGetAsyncError(lane.communicator, &state) != ncclSuccess) break;
    }
    if (state != ncclSuccess) {
      const std::string why =
          state == ncclInProgress ? "the others did not come in time" : ncclGetErrorString(state);
      if (lane.communicator != nullptr) ncclCommAbort(lane.communicator);
      lane.communicator = nullptr;
      fail(ErrorKind::peer, "group {}: NCCL does not connect rank {}: {}", name(),
           info().world_rank(), why);
    }
  }

  ncclResult_t launch(Lane& lane, const Call& call) {
    const CallShape& shape = call.shape;
    const auto count = static_cast<size_t>(shape.count);
    const ncclDataType_t type = type_of(shape.dtype);
    const ncclRedOp_t reduce = shape.reduce == Reduce::sum ? ncclSum : ncclMax;
    ncclComm_t comm = lane.communicator;
    switch (shape.kind) {
      case CallKind::all_reduce:
        return ncclAllReduce(call.send, call.receive, count, type, reduce, comm, lane.stream);
      case CallKind::reduce_scatter:
        return ncclReduceScatter(call.send, call.receive, count, type, reduce, comm, lane.stream);
      case CallKind::all_gather:
        return ncclAllGather(call.send, call.receive, count, type, comm, lane.stream);
      case CallKind::broadcast:
        return ncclBroadcast(call.send, call.receive, count, type, shape.peer, comm, lane.stream);
      case CallKind::barrier:
        return ncclAllReduce(barrier_word_, barrier_word_, 1, ncclInt32, ncclSum, comm,
                             lane.stream);
      case CallKind::all_to_all: return all_to_all(lane, call);
      default: TUTTI_CHECK(false, "{} is no collective", call_name(shape.kind));
    }
  }

  ncclResult_t all_to_all(Lane& lane, const Call& call) {
    const ncclDataType_t type = type_of(call.shape.dtype);
    const int64_t item = dtype_bytes(call.shape.dtype);
    const auto* send = static_cast<const char*>(call.send);
    auto* receive = static_cast<char*>(call.receive);
    ncclGroupStart();
    for (int other = 0; other < size(); ++other) {
      const int64_t sends = call.send_counts[static_cast<size_t>(other)];
      const int64_t receives = call.receive_counts[static_cast<size_t>(other)];
      if (sends > 0) {
        ncclSend(send, static_cast<size_t>(sends), type, other, lane.communicator, lane.stream);
      }
      if (receives > 0) {
        ncclRecv(receive, static_cast<size_t>(receives), type, other, lane.communicator,
                 lane.stream);
      }
      send += sends * item;
      receive += receives * item;
    }
    return ncclGroupEnd();
  }

  // For callers that must not throw: a failure is seen in the next call.
  void start_messages() {
    try {
      guarded([this] { flush_messages(); });
    } catch (const Error&) {
      return;
    }
  }

  void flush_messages() {
    if (messages_.empty()) return;
    Lane& lane = lanes_[1];
    ncclGroupStart();
    for (const Message& message : messages_) {
      const CallShape& shape = message.call.shape;
      const auto count = static_cast<size_t>(shape.count);
      if (count == 0) continue;
      if (shape.kind == CallKind::send) {
        ncclSend(message.call.send, count, type_of(shape.dtype), shape.peer, lane.communicator,
                 lane.stream);
      } else {
        ncclRecv(message.call.receive, count, type_of(shape.dtype), shape.peer, lane.communicator,
                 lane.stream);
      }
    }
    check_nccl(lane, ncclGroupEnd());
    for (const Message& message : messages_) {
      check_cuda(cudaEventRecord(lane.events[message.number % kEvents], lane.stream),
                 "cudaEventRecord");
    }
    messages_.clear();
  }

  void watch() {
    for (int look = 0; !closing_.load(); ++look) {
      sleep_seconds(kWatchSeconds);
      std::string message;
      {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty()) return;
        for (const Lane& lane : lanes_) {
          ncclResult_t state = ncclSuccess;
          ncclCommGetAsyncError(lane.communicator, &state);
          if (state == ncclSuccess || state == ncclInProgress) continue;
          message = fmt::format("group {}: rank {}: NCCL: {} ({})", name(), info().world_rank(),
                                ncclGetErrorString(state), ncclGetLastError(lane.communicator));
        }
      }
      try {
        if (look % kStoreLooks == 0 && !store_->list(prefix_ + "/failure").empty()) {
          message = store_->get(prefix_ + "/failure", 1);
        }
      } catch (const Error& error) {
        message = error.what();
      }
      if (message.empty()) continue;
      // The world knows before kernels end that never had their results.
      report_failure(message);
      fail_with(message);
    }
  }

  std::shared_ptr<Store> store_;
  std::string prefix_;
  int device_ = 0;
  double timeout_seconds_ = 0;
  mutable std::mutex asked_mutex_;  // of the next
  std::string asked_;               // the first reason to fail; it counts
  std::atomic<bool> is_failing_{false};
  mutable std::mutex mutex_;  // of everything below
  std::array<Lane, 2> lanes_;
  cudaEvent_t ready_ = nullptr;
  void* barrier_word_ = nullptr;
  std::vector<Message> messages_;  // not yet started
  CallShape last_;
  double since_seconds_ = 0;
  std::string failure_;
  std::atomic<bool> closing_{false};
  std::thread watcher_;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Group> make_nccl_group(GroupInfo info, std::shared_ptr<Store> store,
                                       const std::string& prefix, int device,
                                       double timeout_seconds) {
  return std::make_unique<NcclGroup>(std::move(info), std::move(store), prefix, device,
                                     timeout_seconds);
}

}  // namespace tutti::comm
