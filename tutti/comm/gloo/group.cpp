#include "tutti/comm/gloo/group.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kMessageTag = uint64_t{1} << 63;  // collectives have the tags below
constexpr double kReasonSeconds = 2;                 // for the reason of a failure to arrive

}  // namespace

GlooGroup::GlooGroup(GlooGroupOptions options)
    : Group(std::move(options.info)),
      store_(std::move(options.store)),
      prefix_(std::move(options.prefix)),
      local_(std::move(options.local)),
      leaders_(std::move(options.leaders)),
      link_(*store_, prefix_ + "/link/", options.address, rank(), size(), options.timeout_seconds),
      stream_(engine::make_cpu_stream(1)) {
  for (int other = 0; other < size(); ++other) everybody_.push_back(other);
  activity_.rank = info().world_rank();
  auto lane = std::make_unique<Lane>();
  collectives_ = lane.get();
  lanes_[0] = std::move(lane);
  collectives_->thread = std::thread([this] { run(*collectives_); });
}

GlooGroup::~GlooGroup() {
  bool pending = false;
  std::vector<Lane*> lanes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [index, lane] : lanes_) {
      lanes.push_back(lane.get());
      pending = pending || !lane->queue.done(lane->queue.submitted());
    }
  }
  if (pending) {
    fail_with(
        fmt::format("group {}: rank {} leaves with pending calls", name(), info().world_rank()));
  }
  for (Lane* lane : lanes) {
    lane->queue.close();
    lane->thread.join();
  }
}

std::string GlooGroup::name_of(int rank) const {
  return std::to_string(info().members[static_cast<size_t>(rank)]);
}

std::vector<RankActivity> GlooGroup::activity() const {
  const std::lock_guard lock(mutex_);
  return {activity_};
}

void GlooGroup::fail_with(const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = message;
  }
  // First: the store may not answer, and the others give the reason time to arrive.
  link_.interrupt();
  if (local_ != nullptr) local_->fail_with(message);
  try {
    store_->set(prefix_ + "/failure", message);
  } catch (const Error&) {
    // Without a store the others learn less: that this rank's connections have ended.
  }
}

// A connection was lost, or the local group has failed: for the reason that a rank gave, or else
// for `why`.
void GlooGroup::collect_failure(const std::string& why) {
  std::string message;
  {
    const std::lock_guard lock(mutex_);
    message = failure_;
  }
  if (message.empty()) {
    try {
      message = store_->get(prefix_ + "/failure", kReasonSeconds);
    } catch (const Error&) {
      message = fmt::format("group {}: rank {}: {}", name(), info().world_rank(), why);
    }
    fail_with(message);
  }
}

GlooGroup::Lane& GlooGroup::lane_of(const CallShape& shape, int32_t& index) {
  index = is_transfer(shape.kind) ? 1 + 2 * shape.peer + (shape.kind == CallKind::send ? 0 : 1) : 0;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Lane>& lane = lanes_[index];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
    Lane& made = *lane;
    made.thread = std::thread([this, &made] { run(made); });
  }
  return *lane;
}

Ticket GlooGroup::enqueue(engine::Stream& stream, const Call& call) {
  stream.synchronize();
  {
    std::unique_lock lock(mutex_);
    const std::string message = failure_;
    lock.unlock();
    if (!message.empty()) {
      report_failure(message);
      throw Error(ErrorKind::peer, message);
    }
  }
  int32_t index = 0;
  Lane& lane = lane_of(call.shape, index);
  return {this, index, lane.queue.submit(call)};
}

bool GlooGroup::done(int32_t lane, uint64_t number) const {
  std::unique_lock lock(mutex_);
  const CallQueue& queue = lanes_.at(lane)->queue;
  lock.unlock();
  return queue.done(number);
}

void GlooGroup::wait(engine::Stream& /*stream*/, int32_t lane, uint64_t number) {
  std::unique_lock lock(mutex_);
  CallQueue& queue = lanes_.at(lane)->queue;
  lock.unlock();
  queue.wait(number);
}

void GlooGroup::run(Lane& lane) {
  while (lane.queue.wait_submitted(lane.number)) {
    const uint64_t number = ++lane.number;
    const Call& call = lane.queue.at(number);
    try {
      is_transfer(call.shape.kind) ? transfer(call, number) : carry_out(call, number);
    } catch (const Error& error) {
      collect_failure(error.what());
      // Buffers go back to their owner: nothing may be on its way to or from them.
      if (!is_transfer(call.shape.kind)) {
        sends_.clear();
        for (Begun& one : begun_) {
          one.headers.clear();
          for (auto& receives : one.receives) receives.clear();
        }
      }
      std::string message;
      {
        const std::lock_guard lock(mutex_);
        message = failure_;
      }
      report_failure(message);
      lane.queue.fail(message);
      return;
    }
    lane.queue.complete(number);
  }
}

void GlooGroup::transfer(const Call& call, uint64_t number) {
  const CallShape& shape = call.shape;
  const int64_t bytes = shape.count * dtype_bytes(shape.dtype);
  const uint64_t tag = kMessageTag | number << 1;
  Header header = {shape, number, info().generation, 0};
  if (shape.kind == CallKind::send) {
    GlooLink::Transfer head = link_.send(&header, sizeof header, shape.peer, tag);
    head.wait();
    // The receiver says what it expects before any data moves.
    Header theirs = {};
    link_.receive(&theirs, sizeof theirs, shape.peer, tag | 1).wait();
    if (theirs.shape.dtype != shape.dtype || theirs.shape.count != shape.count) {
      fail_with(fmt::format(
          "group {}: ranks ask for different things in message {}: rank {} {}, rank {} {}", name(),
          number, name_of(rank()), call_text(shape), name_of(shape.peer), call_text(theirs.shape)));
      fail(ErrorKind::peer, "calls differ");
    }
    link_.send(call.send, bytes, shape.peer, tag).wait();
    return;
  }
  Header theirs = {};
  link_.receive(&theirs, sizeof theirs, shape.peer, tag).wait();
  link_.send(&header, sizeof header, shape.peer, tag | 1).wait();
  if (theirs.shape.dtype != shape.dtype || theirs.shape.count != shape.count) {
    collect_failure("calls differ");  // the sender says so
    fail(ErrorKind::peer, "calls differ");
  }
  link_.receive(call.receive, bytes, shape.peer, tag).wait();
}

}  // namespace tutti::comm
