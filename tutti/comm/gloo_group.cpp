#include "tutti/comm/gloo_group.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/partition.h"
#include "tutti/engine/cpu/reduce.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kMessageTag = uint64_t{1} << 63;  // collectives have the tags below
constexpr double kReasonSeconds = 2;                 // for the reason of a failure to arrive

// What ranks tell each other before a collective.
struct Header {
  CallShape shape;
  uint64_t number;
  uint64_t generation;
  int64_t send_count;  // of all_to_all, to the rank that is told
};

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
  sources_.resize(everybody_.size());
  activity_.rank = info().world_rank();
  auto lane = std::make_unique<Lane>();
  Lane& collectives = *lane;
  lanes_[0] = std::move(lane);
  collectives.thread = std::thread([this, &collectives] { run(collectives); });
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
    fail_with(fmt::format("group {}: rank {} leaves while calls of its own are pending", name(),
                          info().world_rank()));
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
  try {
    store_->set(prefix_ + "/failure", message);
  } catch (const Error&) {
    // Without a store the others learn less: that this rank's connections have ended.
  }
  link_.interrupt();
  if (local_ != nullptr) local_->fail_with(message);
}

// A connection was lost, or the local group has failed: for the reason that somebody gave, or else
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
      if (!is_transfer(call.shape.kind)) transfers_.clear();
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

void GlooGroup::carry_out(const Call& call, uint64_t number) {
  const auto note = [&](bool inside) {
    const std::lock_guard lock(mutex_);
    activity_.calls = number;
    activity_.last = call.shape;
    activity_.inside = inside;
    activity_.since_seconds = monotonic_seconds();
  };
  note(true);
  transfers_.clear();
  compare_calls(call, number);
  const uint64_t tag = number << 3;  // up to eight phases
  switch (call.shape.kind) {
    case CallKind::all_reduce:
      if (leaders_.empty()) {
        all_reduce_among(everybody_, call, tag + 1);
      } else {
        all_reduce_by_hosts(call, tag + 1);
      }
      break;
    case CallKind::reduce_scatter: reduce_scatter_flat(call, tag + 1); break;
    case CallKind::all_gather: all_gather_flat(call, tag + 1); break;
    case CallKind::all_to_all: all_to_all_flat(call, tag + 1); break;
    case CallKind::broadcast: broadcast_flat(call, tag + 1); break;
    default: break;  // a barrier has happened when calls have been compared
  }
  note(false);
}

void GlooGroup::compare_calls(const Call& call, uint64_t number) {
  std::vector<Header> mine(everybody_.size());
  std::vector<Header> theirs(everybody_.size());
  const auto is_uneven = call.shape.kind == CallKind::all_to_all;
  for (int other = 0; other < size(); ++other) {
    const auto index = static_cast<size_t>(other);
    mine[index] = {call.shape, number, info().generation, is_uneven ? call.send_counts[index] : 0};
    if (other == rank()) continue;
    transfers_.push_back(link_.send(&mine[index], sizeof(Header), other, number << 3));
    transfers_.push_back(link_.receive(&theirs[index], sizeof(Header), other, number << 3));
  }
  theirs[static_cast<size_t>(rank())] = mine[static_cast<size_t>(rank())];
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
  std::string difference;
  for (int other = 1; other < size() && difference.empty(); ++other) {
    const Header& first = theirs[0];
    const Header& header = theirs[static_cast<size_t>(other)];
    if (header.shape == first.shape && header.generation == first.generation) continue;
    difference = fmt::format("rank {} {}, rank {} {}", name_of(0), call_text(first.shape),
                             name_of(other), call_text(header.shape));
  }
  for (int other = 0; is_uneven && other < size() && difference.empty(); ++other) {
    const int64_t sends = theirs[static_cast<size_t>(other)].send_count;
    const int64_t receives = call.receive_counts[static_cast<size_t>(other)];
    if (sends == receives) continue;
    difference = fmt::format("in all_to_all rank {} sends {} elements to rank {}, which expects {}",
                             name_of(other), sends, name_of(rank()), receives);
  }
  if (difference.empty()) return;
  fail_with(fmt::format("group {}: ranks ask for different things in call {}: {}", name(), number,
                        difference));
  fail(ErrorKind::peer, "calls differ");
}

void GlooGroup::all_reduce_by_hosts(const Call& call, uint64_t tag) {
  const CallShape& shape = call.shape;
  const bool widen = shape.dtype == DType::bf16;
  engine::Vector send = {const_cast<void*>(call.send), shape.dtype, shape.count};
  engine::Vector receive = {call.receive, shape.dtype, shape.count};
  if (widen) {
    wide_.resize(static_cast<size_t>(shape.count) * sizeof(float));
    const engine::Vector wide = {wide_.data(), DType::f32, shape.count};
    stream_->ops().convert(*stream_, {.x = send, .out = wide});
    send = receive = wide;
  }
  if (local_ != nullptr) {
    local_->all_reduce(*stream_, send, receive, shape.reduce).wait(*stream_);
  } else if (send.data != receive.data) {
    std::memcpy(receive.data, send.data, static_cast<size_t>(receive.bytes()));
  }
  if (local_ == nullptr || local_->rank() == 0) {
    Call between = call;
    between.shape.dtype = receive.dtype;
    between.send = between.receive = receive.data;
    all_reduce_among(leaders_, between, tag);
  }
  if (local_ != nullptr) local_->broadcast(*stream_, receive, 0).wait(*stream_);
  if (widen) {
    stream_->ops().convert(*stream_,
                           {.x = receive, .out = {call.receive, shape.dtype, shape.count}});
  }
}

void GlooGroup::all_reduce_among(const std::vector<int>& ranks, const Call& call, uint64_t tag) {
  const CallShape& shape = call.shape;
  const int64_t item = dtype_bytes(shape.dtype);
  const int parts = static_cast<int>(ranks.size());
  const int place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  const Part mine = part_of(shape.count, item, place, parts);
  const auto* send = static_cast<const char*>(call.send);
  auto* receive = static_cast<char*>(call.receive);
  scratch_.resize(static_cast<size_t>(parts * mine.count * item));
  sources_.resize(ranks.size());
  for (int other = 0; other < parts; ++other) {
    const auto index = static_cast<size_t>(other);
    if (other == place) {
      sources_[index] = send + mine.begin * item;
      continue;
    }
    char* from_other = scratch_.data() + other * mine.count * item;
    sources_[index] = from_other;
    const Part theirs = part_of(shape.count, item, other, parts);
    transfers_.push_back(
        link_.send(send + theirs.begin * item, theirs.count * item, ranks[index], tag));
    transfers_.push_back(link_.receive(from_other, mine.count * item, ranks[index], tag));
  }
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
  void* const result = receive + mine.begin * item;
  engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&result, 1}, mine.count);
  for (int other = 0; other < parts; ++other) {
    if (other == place) continue;
    const auto index = static_cast<size_t>(other);
    const Part theirs = part_of(shape.count, item, other, parts);
    transfers_.push_back(link_.send(result, mine.count * item, ranks[index], tag + 1));
    transfers_.push_back(
        link_.receive(receive + theirs.begin * item, theirs.count * item, ranks[index], tag + 1));
  }
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
}

void GlooGroup::reduce_scatter_flat(const Call& call, uint64_t tag) {
  const CallShape& shape = call.shape;
  const int64_t bytes = shape.count * dtype_bytes(shape.dtype);
  const auto* send = static_cast<const char*>(call.send);
  scratch_.resize(static_cast<size_t>(size() * bytes));
  sources_.resize(everybody_.size());
  for (const int other : everybody_) {
    char* from_other = scratch_.data() + other * bytes;
    sources_[static_cast<size_t>(other)] = other == rank() ? send + rank() * bytes : from_other;
    if (other == rank()) continue;
    transfers_.push_back(link_.send(send + other * bytes, bytes, other, tag));
    transfers_.push_back(link_.receive(from_other, bytes, other, tag));
  }
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
  void* const result = call.receive;
  engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&result, 1}, shape.count);
}

void GlooGroup::all_gather_flat(const Call& call, uint64_t tag) {
  const int64_t bytes = call.shape.count * dtype_bytes(call.shape.dtype);
  auto* receive = static_cast<char*>(call.receive);
  for (const int other : everybody_) {
    if (other == rank()) continue;
    transfers_.push_back(link_.send(call.send, bytes, other, tag));
    transfers_.push_back(link_.receive(receive + other * bytes, bytes, other, tag));
  }
  if (bytes > 0) std::memmove(receive + rank() * bytes, call.send, static_cast<size_t>(bytes));
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
}

void GlooGroup::all_to_all_flat(const Call& call, uint64_t tag) {
  const int64_t item = dtype_bytes(call.shape.dtype);
  const auto* send = static_cast<const char*>(call.send);
  auto* receive = static_cast<char*>(call.receive);
  for (const int other : everybody_) {
    const auto index = static_cast<size_t>(other);
    const int64_t sends = call.send_counts[index] * item;
    const int64_t receives = call.receive_counts[index] * item;
    if (other != rank()) {
      transfers_.push_back(link_.send(send, sends, other, tag));
      transfers_.push_back(link_.receive(receive, receives, other, tag));
    } else if (sends > 0) {
      std::memcpy(receive, send, static_cast<size_t>(sends));
    }
    send += sends;
    receive += receives;
  }
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
}

void GlooGroup::broadcast_flat(const Call& call, uint64_t tag) {
  const int64_t bytes = call.shape.count * dtype_bytes(call.shape.dtype);
  if (rank() != call.shape.peer) {
    link_.receive(call.receive, bytes, call.shape.peer, tag).wait();
    return;
  }
  for (const int other : everybody_) {
    if (other != rank()) transfers_.push_back(link_.send(call.send, bytes, other, tag));
  }
  for (GlooLink::Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
}

}  // namespace tutti::comm
