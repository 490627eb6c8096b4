#include "tutti/comm/nccl_messages.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::comm {

NcclMessages::NcclMessages(std::string group, std::shared_ptr<Store> store, std::string prefix,
                           int rank)
    : group_(std::move(group)), store_(std::move(store)), prefix_(std::move(prefix)), rank_(rank) {}

NcclMessages::~NcclMessages() {
  for (const auto& link : links_) {
    for (const Message& message : link->waiting) cudaEventDestroy(message.ready);
  }
  for (const cudaEvent_t event : spare_) cudaEventDestroy(event);
}

// The sender is rank 0 of the two.
size_t NcclMessages::link_of(int peer, bool is_send) {
  const auto [found, is_new] = places_.try_emplace({peer, is_send}, links_.size());
  if (is_new) {
    const std::string from_to =
        fmt::format("from-{}-to-{}", is_send ? rank_ : peer, is_send ? peer : rank_);
    links_.push_back(std::make_unique<Link>());
    links_.back()->lane =
        std::make_unique<NcclLane>(fmt::format("group {}, messages {}", group_, from_to),
                                   fmt::format("{}/nccl/{}", prefix_, from_to), is_send ? 0 : 1, 2);
  }
  return found->second;
}

cudaEvent_t NcclMessages::spare_event() {
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  return event;
}

NcclMessages::Place NcclMessages::add(cudaStream_t stream, const Call& call) {
  const size_t index = link_of(call.shape.peer, call.shape.kind == CallKind::send);
  Link& link = *links_[index];
  const cudaEvent_t ready = spare_event();
  link.waiting.push_back({call, ++link.added, ready});
  check_cuda(cudaEventRecord(ready, stream), "cudaEventRecord");
  advance(link);
  count_waiting();
  return {static_cast<int32_t>(index), link.added};
}

void NcclMessages::advance(Link& link) {
  if (link.waiting.empty() || !link.lane->connect(*store_)) return;
  while (!link.waiting.empty()) {
    const Message& message = link.waiting.front();
    NcclLane& lane = *link.lane;
    if (!link.is_under_way) {
      lane.after(message.ready);
      const CallShape& shape = message.call.shape;
      const auto count = static_cast<size_t>(shape.count);
      const bool is_send = shape.kind == CallKind::send;
      if (count > 0) {
        lane.issue([&] {
          return is_send ? ncclSend(message.call.send, count, nccl_type(shape.dtype), 1,
                                    lane.communicator(), lane.stream())
                         : ncclRecv(message.call.receive, count, nccl_type(shape.dtype), 0,
                                    lane.communicator(), lane.stream());
        });
      }
      link.is_under_way = true;
    }
    if (lane.is_busy()) return;
    lane.mark(message.number);
    link.started = message.number;
    link.is_under_way = false;
    spare_.push_back(message.ready);
    link.waiting.pop_front();
  }
}

void NcclMessages::advance() {
  for (const auto& link : links_) advance(*link);
  count_waiting();
}

void NcclMessages::count_waiting() {
  waiting_.store(std::any_of(links_.begin(), links_.end(),
                             [](const auto& link) { return !link->waiting.empty(); }));
}

bool NcclMessages::is_started(const Place& place) const {
  return links_[static_cast<size_t>(place.lane)]->started >= place.number;
}

cudaEvent_t NcclMessages::event_of(const Place& place) const {
  return links_[static_cast<size_t>(place.lane)]->lane->event_of(place.number);
}

std::string NcclMessages::failure() const {
  for (const auto& link : links_) {
    if (std::string failure = link->lane->failure(); !failure.empty()) return failure;
  }
  return "";
}

void NcclMessages::begin_end() {
  for (const auto& link : links_) link->lane->begin_end();
}

void NcclMessages::end(double deadline_seconds) {
  for (const auto& link : links_) link->lane->end(deadline_seconds);
}

void NcclMessages::abort() {
  for (const auto& link : links_) link->lane->abort();
}

}  // namespace tutti::comm
