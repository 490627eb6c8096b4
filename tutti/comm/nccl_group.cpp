#include "tutti/comm/nccl_group.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/nccl_lane.h"
#include "tutti/comm/nccl_messages.h"
#include "tutti/engine/device_stream.h"

namespace tutti::comm {
namespace {

constexpr double kWatchSeconds = 0.05;
constexpr double kWaitingSeconds = 1e-3;  // between looks while messages wait to be started
constexpr double kStoreSeconds = 1;       // between looks into the store

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
    // Which streams that do not wait for the default one must not overtake.
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
    collectives_ = std::make_unique<NcclLane>("group " + name() + ", collectives",
                                              prefix_ + "/nccl/collectives", rank(), size());
    messages_ = std::make_unique<NcclMessages>(name(), store_, prefix_, rank());
    const double end = monotonic_seconds() + timeout_seconds;
    while (!collectives_->connect(*store_)) {
      if (monotonic_seconds() > end) {
        fail(ErrorKind::peer,
             "group {}: NCCL does not connect rank {}: the others did not come in "
             "time",
             name(), this->info().world_rank());
      }
      sleep_seconds(1e-3);
    }
    watcher_ = std::thread([this] { watch(); });
  }

  ~NcclGroup() override {
    closing_.store(true);
    watcher_.join();
    const std::lock_guard lock(mutex_);
    if (cudaSetDevice(device_) != cudaSuccess) return;
    // Of the other ranks, one may have vanished.
    const double deadline = monotonic_seconds() + timeout_seconds_;
    collectives_->begin_end();
    messages_->begin_end();
    collectives_->end(deadline);
    messages_->end(deadline);
    messages_.reset();
    collectives_.reset();
    cudaEventDestroy(ready_);
    cudaFree(barrier_word_);
  }

  std::vector<RankActivity> activity() const override {
    const std::lock_guard lock(mutex_);
    cudaSetDevice(device_);  // else a thread that asks would take the first device into use
    RankActivity self;
    self.rank = info().world_rank();
    self.calls = calls_;
    self.last = last_;
    self.since_seconds = since_seconds_;
    self.inside = calls_ > 0 && cudaEventQuery(collectives_->event_of(calls_)) == cudaErrorNotReady;
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
      collectives_->abort();
      messages_->abort();
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
    auto* self = const_cast<NcclGroup*>(this);
    if (lane > 0) self->advance_messages();
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return true;
    if (lane > 0 && !messages_->is_started({lane - 1, number})) return false;
    return cudaEventQuery(event_of(lane, number)) != cudaErrorNotReady;
  }

  void wait(engine::Stream& stream, int32_t lane, uint64_t number) override {
    bool is_started = lane == 0;
    while (!is_started) {  // others may fail the group meanwhile
      guarded([&] {
        messages_->advance();
        is_started = messages_->is_started({lane - 1, number});
      });
      if (!is_started) sleep_seconds(kWaitingSeconds / 10);
    }
    guarded([&] {
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
    if (is_transfer(call.shape.kind)) {
      const NcclMessages::Place place = messages_->add(stream_of(stream), call);
      return {this, place.lane + 1, place.number};
    }
    check_cuda(cudaEventRecord(ready_, stream_of(stream)), "cudaEventRecord");
    collectives_->after(ready_);
    last_ = call.shape;
    since_seconds_ = monotonic_seconds();
    ++calls_;
    launch(call);
    collectives_->mark(calls_);
    return {this, 0, calls_};
  }

  cudaEvent_t event_of(int32_t lane, uint64_t number) const {
    return lane == 0 ? collectives_->event_of(number) : messages_->event_of({lane - 1, number});
  }

  // Returns when the call is on the stream. NCCL connects to ranks on the first call with them, and
  // one that has vanished never answers.
  void launch(const Call& call) {
    collectives_->issue([&] { return start(call); });
    const double end = monotonic_seconds() + timeout_seconds_;
    while (collectives_->is_busy()) {
      if (is_failing_.load()) {
        const std::lock_guard lock(asked_mutex_);
        fail(ErrorKind::peer, "{}", asked_);
      }
      if (monotonic_seconds() > end) {
        fail(ErrorKind::peer, "group {}: NCCL has not started a call within {} s", name(),
             timeout_seconds_);
      }
      messages_->advance();  // another rank may come only when it has one of these
    }
  }

  ncclResult_t start(const Call& call) {
    const CallShape& shape = call.shape;
    const auto count = static_cast<size_t>(shape.count);
    const ncclDataType_t type = nccl_type(shape.dtype);
    const ncclRedOp_t reduce = shape.reduce == Reduce::sum ? ncclSum : ncclMax;
    ncclComm_t comm = collectives_->communicator();
    const cudaStream_t stream = collectives_->stream();
    switch (shape.kind) {
      case CallKind::all_reduce:
        return ncclAllReduce(call.send, call.receive, count, type, reduce, comm, stream);
      case CallKind::reduce_scatter:
        return ncclReduceScatter(call.send, call.receive, count, type, reduce, comm, stream);
      case CallKind::all_gather:
        return ncclAllGather(call.send, call.receive, count, type, comm, stream);
      case CallKind::broadcast:
        return ncclBroadcast(call.send, call.receive, count, type, shape.peer, comm, stream);
      case CallKind::barrier:
        return ncclAllReduce(barrier_word_, barrier_word_, 1, ncclInt32, ncclSum, comm, stream);
      case CallKind::all_to_all: return all_to_all(call);
      default: TUTTI_CHECK(false, "{} is no collective", call_name(shape.kind));
    }
  }

  ncclResult_t all_to_all(const Call& call) {
    ncclComm_t comm = collectives_->communicator();
    const cudaStream_t stream = collectives_->stream();
    const ncclDataType_t type = nccl_type(call.shape.dtype);
    const int64_t item = dtype_bytes(call.shape.dtype);
    const auto* send = static_cast<const char*>(call.send);
    auto* receive = static_cast<char*>(call.receive);
    ncclResult_t result = ncclGroupStart();
    const auto keep = [&](ncclResult_t one) {
      if (result == ncclSuccess) result = one;
    };
    for (int other = 0; other < size(); ++other) {
      const int64_t sends = call.send_counts[static_cast<size_t>(other)];
      const int64_t receives = call.receive_counts[static_cast<size_t>(other)];
      if (sends > 0) {
        keep(ncclSend(send, static_cast<size_t>(sends), type, other, comm, stream));
      }
      if (receives > 0) {
        keep(ncclRecv(receive, static_cast<size_t>(receives), type, other, comm, stream));
      }
      send += sends * item;
      receive += receives * item;
    }
    keep(ncclGroupEnd());
    return result;
  }

  // For callers that must not throw: a failure is seen in the next call.
  void advance_messages() {
    try {
      guarded([this] { messages_->advance(); });
    } catch (const Error&) {
      return;
    }
  }

  // Starts messages whose peer has come meanwhile, also while the rank computes or waits for
  // another group; sees failures of NCCL and of other ranks.
  void watch() {
    cudaSetDevice(device_);  // of this thread
    double watched = 0;
    double looked = 0;
    while (!closing_.load()) {
      sleep_seconds(messages_->are_waiting() ? kWaitingSeconds : kWatchSeconds);
      if (messages_->are_waiting()) advance_messages();
      const double now = monotonic_seconds();
      if (now - watched < kWatchSeconds) continue;
      watched = now;
      std::string message;
      {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty()) return;
        message = collectives_->failure();
        if (message.empty()) message = messages_->failure();
      }
      try {
        if (message.empty() && now - looked > kStoreSeconds) {
          looked = now;
          if (!store_->list(prefix_ + "/failure").empty()) {
            message = store_->get(prefix_ + "/failure", 1);
          }
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
  std::unique_ptr<NcclLane> collectives_;
  std::unique_ptr<NcclMessages> messages_;
  cudaEvent_t ready_ = nullptr;
  void* barrier_word_ = nullptr;
  uint64_t calls_ = 0;
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
