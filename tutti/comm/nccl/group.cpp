#include "tutti/comm/nccl/group.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/nccl/calls.h"
#include "tutti/comm/nccl/lane.h"
#include "tutti/engine/device_stream.h"

namespace tutti::comm {
namespace {

constexpr double kWatchSeconds = 0.05;
constexpr double kStoreSeconds = 1;  // between looks into the store
// Multiprocessors of a message: what waits for another rank keeps them, so all that wait at a time
// must fit on the device (group.h).
constexpr int kMessageBlocks = 8;

// The first version that can start calls in launch order.
constexpr int kLeastVersion = NCCL_VERSION(2, 26, 0);

void check_version() {
  int version = 0;
  const ncclResult_t asked = ncclGetVersion(&version);
  if (asked == ncclSuccess && version >= kLeastVersion) return;
  fail(ErrorKind::unsupported,
       "NCCL {}.{}.{} does not keep the order of calls on several communicators "
       "(NCCL_LAUNCH_ORDER_IMPLICIT): install 2.26 or later",
       version / 10000, version / 100 % 100, version % 100);
}

// Of messages between this rank and a peer.
struct Way {
  int peer = 0;
  bool is_send = false;
  auto operator<=>(const Way&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
};

// Everything of NCCL's; threads that are in it own it, too.
struct Lanes {
  std::unique_ptr<NcclLane> collectives;
  std::vector<std::unique_ptr<NcclLane>> messages;
  std::vector<Way> ways;  // of these
  void* word = nullptr;   // in the device's memory, for calls without data
  ~Lanes() { cudaFree(word); }

  template <typename Body>
  void each(const Body& body) const {
    body(*collectives);
    for (const auto& lane : messages) body(*lane);
  }
  void abort() const {
    each([](NcclLane& lane) { lane.abort(); });
  }
};

// All lanes, in the order in which every rank makes those that it has; the first call on each, for
// which NCCL connects.
void connect(const Lanes& lanes, Store& store, double deadline_seconds) {
  void* const word = lanes.word;
  lanes.collectives->connect(store, deadline_seconds);
  lanes.collectives->issue([&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(word, word, 1, ncclInt32, ncclSum, comm, stream);
  });
  for (size_t i = 0; i < lanes.messages.size(); ++i) {
    lanes.messages[i]->connect(store, deadline_seconds);
    lanes.messages[i]->issue([&](ncclComm_t comm, cudaStream_t stream) {
      Call first;
      first.shape = {lanes.ways[i].is_send ? CallKind::send : CallKind::receive, DType::i32};
      first.shape.count = 1;
      first.send = first.receive = word;
      return nccl_message(first, comm, stream);
    });
  }
}

class NcclGroup : public Group {
 public:
  NcclGroup(GroupInfo info, std::shared_ptr<Store> store, const std::string& prefix, int device,
            double timeout_seconds)
      : Group(std::move(info)),
        store_(std::move(store)),
        prefix_(prefix),
        device_(device),
        timeout_seconds_(timeout_seconds),
        lanes_(std::make_shared<Lanes>()) {
    check_version();
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaMalloc(&lanes_->word, sizeof(int32_t)), "cudaMalloc");
    check_cuda(cudaMemset(lanes_->word, 0, sizeof(int32_t)), "cudaMemset");
    // Which streams that do not wait for the default one must not overtake.
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
    make_lanes();
    const double deadline = monotonic_seconds() + timeout_seconds;
    const auto connecting = [lanes = lanes_, store = store_, deadline] {
      connect(*lanes, *store, deadline);
    };
    bool connected = false;
    std::string why = "a rank came and vanished";
    try {
      connected = run_within(timeout_seconds + 1, device, connecting);
    } catch (const Error& error) {
      why = error.what();
    }
    if (!connected) {
      lanes_->abort();
      fail(ErrorKind::peer, "group {}: NCCL does not connect rank {} within {} s: {}", name(),
           this->info().world_rank(), timeout_seconds, why);
    }
    watcher_ = std::thread([this] { watch(); });
  }

  ~NcclGroup() override {
    closing_.store(true);
    watcher_.join();
    if (cudaSetDevice(device_) != cudaSuccess) return;
    // Of the other ranks, one may have vanished.
    const double deadline = monotonic_seconds() + timeout_seconds_;
    const auto ending = [lanes = lanes_, deadline] {
      lanes->each([&](NcclLane& lane) { lane.end(deadline); });
    };
    try {
      if (!run_within(timeout_seconds_ + 1, device_, ending)) lanes_->abort();
    } catch (const Error&) {  // the device is lost
    }
    cudaEventDestroy(ready_);
  }

  std::vector<RankActivity> activity() const override {
    const std::lock_guard lock(mutex_);
    cudaSetDevice(device_);  // else a thread that asks would take the first device into use
    RankActivity self;
    self.rank = info().world_rank();
    self.calls = calls_;
    self.last = last_;
    self.since_seconds = since_seconds_;
    self.inside = calls_ > marked_ ||
                  (calls_ > 0 && cudaEventQuery(lanes_->collectives->event_of(marked_number_)) ==
                                     cudaErrorNotReady);
    return {self};
  }

  void fail_with(const std::string& reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return;
      failure_ = reason;
    }
    lanes_->abort();
    try {
      store_->set(prefix_ + "/failure", reason);
    } catch (const Error&) {
      // The store has gone with its rank; the others see their communicators fail.
    }
  }

  bool starts_in_order() const override { return true; }

 protected:
  bool takes_device_memory() const override { return true; }

  Ticket enqueue(engine::Stream& stream, const Call& call) override {
    Ticket ticket;
    guarded([&] {
      ticket = is_transfer(call.shape.kind)
                   ? message(stream, call)
                   : collective(stream, call.shape, [&](ncclComm_t comm, cudaStream_t queue) {
                       return nccl_collective(call, size(), lanes_->word, comm, queue);
                     });
    });
    return ticket;
  }

  // One kernel: on the communicator of the collectives, in their order.
  Shifted enqueue_shift(engine::Stream& stream, const Call& send, const Call& receive) override {
    Ticket ticket;
    guarded([&] {
      ticket = collective(stream, send.shape, [&](ncclComm_t comm, cudaStream_t queue) {
        return nccl_shift(send, receive, comm, queue);
      });
    });
    return {ticket, ticket};
  }

  bool done(int32_t lane, uint64_t number) const override {
    if (!failure().empty()) return true;
    return cudaEventQuery(event_of(lane, number)) != cudaErrorNotReady;
  }

  void wait(engine::Stream& stream, int32_t lane, uint64_t number) override {
    guarded([&] {
      check_cuda(cudaStreamWaitEvent(stream_of(stream), event_of(lane, number), 0),
                 "cudaStreamWaitEvent");
    });
  }

 private:
  // In the order of the links, which all ranks have alike: two that share one make it when both
  // have made those before it, so there is no circular wait.
  void make_lanes() {
    const auto lane = [&](const std::string& what, int lane_rank, int ranks, int most_blocks) {
      return std::make_unique<NcclLane>(NcclLane::Options{
          .name = fmt::format("group {}, {}", name(), what),
          .key = fmt::format("{}/nccl/{}", prefix_, what),
          .rank = lane_rank,
          .size = ranks,
          .device = device_,
          .most_blocks = most_blocks,
      });
    };
    lanes_->collectives = lane("collectives", rank(), size(), 0);
    for (const GroupLink& link : info().links) {
      if (link.from != rank() && link.to != rank()) continue;
      const bool sends = link.from == rank();
      const Way way = {sends ? link.to : link.from, sends};
      if (!lane_numbers_.try_emplace(way, lanes_->messages.size()).second) continue;
      lanes_->ways.push_back(way);
      lanes_->messages.push_back(lane(fmt::format("messages from {} to {}", link.from, link.to),
                                      sends ? 0 : 1, 2, kMessageBlocks));
    }
  }

  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Throws what made the group fail, before body() or in it, and aborts the world.
  template <typename Body>
  void guarded(const Body& body) {
    std::string message = failure();
    if (message.empty()) {
      try {
        body();
        return;
      } catch (const Error& error) {
        message = error.what();
      }
      fail_with(message);
      message = failure();  // the first reason counts
      report_failure(message);
    }
    throw Error(ErrorKind::peer, message);
  }

  cudaStream_t stream_of(engine::Stream& stream) const {
    auto* device = dynamic_cast<engine::DeviceStream*>(&stream);
    TUTTI_CHECK(device != nullptr, "group {}: not a stream of a GPU", name());
    return static_cast<cudaStream_t>(device->native_handle());
  }

  cudaEvent_t event_of(int32_t lane, uint64_t number) const {
    const auto index = static_cast<size_t>(lane);
    return (lane == 0 ? *lanes_->collectives : *lanes_->messages[index - 1]).event_of(number);
  }

  // What is on `lane` from now on comes after what is on `stream` now.
  void join(engine::Stream& stream, const NcclLane& lane) {
    check_cuda(cudaEventRecord(ready_, stream_of(stream)), "cudaEventRecord");
    lane.after(ready_);
  }

  template <typename Body>
  Ticket collective(engine::Stream& stream, const CallShape& shape, const Body& body) {
    NcclLane& lane = *lanes_->collectives;
    join(stream, lane);
    {
      const std::lock_guard lock(mutex_);
      last_ = shape;
      since_seconds_ = monotonic_seconds();
      ++calls_;
    }
    lane.issue(body);
    const uint64_t number = lane.mark();
    const std::lock_guard lock(mutex_);
    marked_ = calls_;
    marked_number_ = number;
    return {this, 0, number};
  }

  Ticket message(engine::Stream& stream, const Call& call) {
    const CallShape& shape = call.shape;
    const Way way = {shape.peer, shape.kind == CallKind::send};
    const auto found = lane_numbers_.find(way);
    TUTTI_CHECK(found != lane_numbers_.end(), "group {}: {} of rank {} is along no link of it",
                name(), call_text(shape), rank());
    NcclLane& lane = *lanes_->messages[found->second];
    join(stream, lane);
    lane.issue(
        [&](ncclComm_t comm, cudaStream_t queue) { return nccl_message(call, comm, queue); });
    return {this, static_cast<int32_t>(found->second) + 1, lane.mark()};
  }

  // What is wrong with a lane; empty: nothing.
  std::string trouble() const {
    std::string out;
    lanes_->each([&](const NcclLane& lane) {
      if (!out.empty()) return;
      out = lane.failure();
      if (out.empty() && lane.launching_seconds() > timeout_seconds_) {
        out = fmt::format("{}: NCCL has not started a call within {} s", lane.name(),
                          timeout_seconds_);
      }
    });
    return out;
  }

  // Sees failures of NCCL and of other ranks.
  void watch() {
    cudaSetDevice(device_);  // of this thread
    double looked = 0;
    while (!closing_.load()) {
      sleep_seconds(kWatchSeconds);
      if (!failure().empty()) return;
      std::string message = trouble();
      try {
        if (message.empty() && monotonic_seconds() - looked > kStoreSeconds) {
          looked = monotonic_seconds();
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
  std::shared_ptr<Lanes> lanes_;
  std::map<Way, size_t> lane_numbers_;  // of messages
  cudaEvent_t ready_ = nullptr;
  mutable std::mutex mutex_;  // of what follows, never held in a call of NCCL
  uint64_t calls_ = 0, marked_ = 0;
  uint64_t marked_number_ = 0;  // as the lane counts
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
