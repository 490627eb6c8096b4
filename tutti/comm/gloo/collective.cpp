// The collectives of a gloo group, out of messages between its ranks.
#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/comm/collectives/partition.h"
#include "tutti/comm/gloo/group.h"
#include "tutti/engine/cpu/reduce.h"

namespace tutti::comm {

namespace {

// Of the headers of a collective, or of what follows them: up to two phases.
uint64_t tag_of(uint64_t number) { return number << 2; }
uint64_t tag_of(uint64_t number, size_t phase) { return tag_of(number) + 1 + phase; }

int position_of(int rank, const std::vector<int>& ranks) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// How many of the others than `self` are before `other`.
int64_t before(int other, int self) { return other < self ? other : other - 1; }

// What a call of `size` ranks reads and writes, as far as its shape determines it.
struct Bytes {
  const char* first = nullptr;
  const char* end = nullptr;
  bool meets(const Bytes& other) const { return first < other.end && other.first < end; }
};
Bytes sent(const Call& call, int size) {
  const int64_t parts = call.shape.kind == CallKind::reduce_scatter ? size : 1;
  const auto* first = static_cast<const char*>(call.send);
  return {first, first + call.shape.count * dtype_bytes(call.shape.dtype) * parts};
}
Bytes received(const Call& call, int size) {
  const int64_t parts = call.shape.kind == CallKind::all_gather ? size : 1;
  const auto* first = static_cast<const char*>(call.receive);
  return {first, first + call.shape.count * dtype_bytes(call.shape.dtype) * parts};
}

// Whether what other ranks send for `next`, an all_gather, may arrive while this one is still at
// `call`: they may be done with that before.
bool may_arrive_during(const Call& call, const Call& next, int size) {
  if (call.shape.kind == CallKind::all_to_all) return false;
  const Bytes target = received(next, size);
  return !target.meets(sent(call, size)) && !target.meets(received(call, size));
}

}  // namespace

void GlooGroup::carry_out(const Call& call, uint64_t number) {
  const auto note = [&](bool inside) {
    const std::lock_guard lock(mutex_);
    activity_.calls = number;
    activity_.last = call.shape;
    activity_.inside = inside;
    activity_.since_seconds = monotonic_seconds();
  };
  note(true);
  compare_calls(call, number);
  switch (call.shape.kind) {
    case CallKind::all_reduce:
      if (leaders_.empty()) {
        all_reduce_among(everybody_, call, number);
      } else {
        all_reduce_by_hosts(call, number);
      }
      break;
    case CallKind::reduce_scatter: reduce_scatter_flat(call, number); break;
    case CallKind::all_gather: all_gather_flat(call, number); break;
    case CallKind::all_to_all: all_to_all_flat(call, number); break;
    case CallKind::broadcast: broadcast_flat(call, number); break;
    default: break;  // a barrier has happened when calls have been compared
  }
  note(false);
}

void GlooGroup::begin(uint64_t number, bool is_next) {
  const Call& call = collectives_->queue.at(number);
  Begun& one = begun(number);
  one.number = number;
  one.mine.resize(everybody_.size());
  one.theirs.resize(everybody_.size());
  for (const int other : everybody_) {
    const auto index = static_cast<size_t>(other);
    const bool is_uneven = call.shape.kind == CallKind::all_to_all;
    one.mine[index] = {call.shape, number, info().generation,
                       is_uneven ? call.send_counts[index] : 0};
    if (other == rank()) {
      one.theirs[index] = one.mine[index];
      continue;
    }
    const uint64_t tag = tag_of(number);
    one.headers.push_back(link_.receive(&one.theirs[index], sizeof(Header), other, tag));
    one.headers.push_back(link_.send(&one.mine[index], sizeof(Header), other, tag));
  }
  switch (call.shape.kind) {
    case CallKind::all_reduce:
      if (leaders_.empty()) receive_all_reduce(everybody_, call, number);
      break;
    case CallKind::reduce_scatter: receive_reduce_scatter(call, number); break;
    case CallKind::all_gather:
      if (is_next && !may_arrive_during(collectives_->queue.at(number - 1), call, size())) break;
      receive_all_gather(call, number);
      break;
    default: break;
  }
}

void GlooGroup::compare_calls(const Call& call, uint64_t number) {
  if (begun(number).number != number) begin(number, false);
  for (GlooLink::Transfer& header : begun(number).headers) header.wait();
  begun(number).headers.clear();
  const std::vector<Header>& theirs = begun(number).theirs;
  std::string difference;
  for (int other = 1; other < size() && difference.empty(); ++other) {
    const Header& first = theirs[0];
    const Header& header = theirs[static_cast<size_t>(other)];
    if (header.shape == first.shape && header.generation == first.generation) continue;
    difference = fmt::format("rank {} {}, rank {} {}", name_of(0), call_text(first.shape),
                             name_of(other), call_text(header.shape));
  }
  const bool is_uneven = call.shape.kind == CallKind::all_to_all;
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

void GlooGroup::send_to(int peer, const void* data, int64_t bytes, uint64_t number, size_t phase) {
  outgoing_.push_back({data, bytes, peer, tag_of(number, phase)});
}

void GlooGroup::receive_from(int peer, void* data, int64_t bytes, uint64_t number, size_t phase) {
  begun(number).receives[phase].push_back(link_.receive(data, bytes, peer, tag_of(number, phase)));
}

// A rank sends when it has heard that its message is expected. Between two ranks everything goes in
// order, so the next call is begun before the data of this one are sent.
void GlooGroup::exchange(uint64_t number, size_t phase) {
  const uint64_t next = number + 1;
  if (begun(next).number != next && collectives_->queue.submitted() >= next) begin(next, true);
  for (const Outgoing& one : outgoing_) {
    sends_.push_back(link_.send(one.data, one.bytes, one.peer, one.tag));
  }
  outgoing_.clear();
  for (GlooLink::Transfer& receive : begun(number).receives[phase]) receive.wait();
  begun(number).receives[phase].clear();
  for (GlooLink::Transfer& send : sends_) send.wait();
  sends_.clear();
}

void GlooGroup::all_reduce_by_hosts(const Call& call, uint64_t number) {
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
    receive_all_reduce(leaders_, between, number);
    all_reduce_among(leaders_, between, number);
  }
  if (local_ != nullptr) local_->broadcast(*stream_, receive, 0).wait(*stream_);
  if (widen) {
    stream_->ops().convert(*stream_,
                           {.x = receive, .out = {call.receive, shape.dtype, shape.count}});
  }
}

// Both phases at once: the sender of a part's sum has received all of that part before, so it may
// arrive where the part itself was sent from.
void GlooGroup::receive_all_reduce(const std::vector<int>& ranks, const Call& call,
                                   uint64_t number) {
  const CallShape& shape = call.shape;
  const int64_t item = dtype_bytes(shape.dtype);
  const int parts = static_cast<int>(ranks.size());
  const int self = position_of(rank(), ranks);
  const Part mine = part_of(shape.count, item, self, parts);
  std::vector<char>& scratch = begun(number).scratch;
  scratch.resize(static_cast<size_t>((parts - 1) * mine.count * item));
  for (int other = 0; other < parts; ++other) {
    if (other == self) continue;
    const int peer = ranks[static_cast<size_t>(other)];
    const Part theirs = part_of(shape.count, item, other, parts);
    char* from_other = scratch.data() + before(other, self) * mine.count * item;
    receive_from(peer, from_other, mine.count * item, number, 0);
    receive_from(peer, static_cast<char*>(call.receive) + theirs.begin * item, theirs.count * item,
                 number, 1);
  }
}

void GlooGroup::all_reduce_among(const std::vector<int>& ranks, const Call& call, uint64_t number) {
  const CallShape& shape = call.shape;
  const int64_t item = dtype_bytes(shape.dtype);
  const int parts = static_cast<int>(ranks.size());
  const int self = position_of(rank(), ranks);
  const Part mine = part_of(shape.count, item, self, parts);
  const auto* send = static_cast<const char*>(call.send);
  sources_.resize(ranks.size());
  for (int other = 0; other < parts; ++other) {
    const auto index = static_cast<size_t>(other);
    if (other == self) {
      sources_[index] = send + mine.begin * item;
      continue;
    }
    sources_[index] = begun(number).scratch.data() + before(other, self) * mine.count * item;
    const Part theirs = part_of(shape.count, item, other, parts);
    send_to(ranks[index], send + theirs.begin * item, theirs.count * item, number, 0);
  }
  exchange(number, 0);
  void* const result = static_cast<char*>(call.receive) + mine.begin * item;
  engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&result, 1}, mine.count);
  for (int other = 0; other < parts; ++other) {
    if (other == self) continue;
    send_to(ranks[static_cast<size_t>(other)], result, mine.count * item, number, 1);
  }
  exchange(number, 1);
}

void GlooGroup::receive_reduce_scatter(const Call& call, uint64_t number) {
  const int64_t bytes = call.shape.count * dtype_bytes(call.shape.dtype);
  std::vector<char>& scratch = begun(number).scratch;
  scratch.resize(static_cast<size_t>((size() - 1) * bytes));
  for (const int other : everybody_) {
    if (other == rank()) continue;
    receive_from(other, scratch.data() + before(other, rank()) * bytes, bytes, number, 0);
  }
}

void GlooGroup::reduce_scatter_flat(const Call& call, uint64_t number) {
  const CallShape& shape = call.shape;
  const int64_t bytes = shape.count * dtype_bytes(shape.dtype);
  const auto* send = static_cast<const char*>(call.send);
  sources_.resize(everybody_.size());
  for (const int other : everybody_) {
    const void*& source = sources_[static_cast<size_t>(other)];
    if (other == rank()) {
      source = send + rank() * bytes;
      continue;
    }
    source = begun(number).scratch.data() + before(other, rank()) * bytes;
    send_to(other, send + other * bytes, bytes, number, 0);
  }
  exchange(number, 0);
  void* const result = call.receive;
  engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&result, 1}, shape.count);
}

void GlooGroup::receive_all_gather(const Call& call, uint64_t number) {
  const int64_t bytes = call.shape.count * dtype_bytes(call.shape.dtype);
  for (const int other : everybody_) {
    if (other == rank()) continue;
    receive_from(other, static_cast<char*>(call.receive) + other * bytes, bytes, number, 0);
  }
}

void GlooGroup::all_gather_flat(const Call& call, uint64_t number) {
  if (begun(number).receives[0].empty()) receive_all_gather(call, number);
  const int64_t bytes = call.shape.count * dtype_bytes(call.shape.dtype);
  for (const int other : everybody_) {
    if (other != rank()) send_to(other, call.send, bytes, number, 0);
  }
  char* const mine = static_cast<char*>(call.receive) + rank() * bytes;
  if (bytes > 0 && mine != call.send) std::memcpy(mine, call.send, static_cast<size_t>(bytes));
  exchange(number, 0);
}

void GlooGroup::all_to_all_flat(const Call& call, uint64_t number) {
  const int64_t item = dtype_bytes(call.shape.dtype);
  const auto* send = static_cast<const char*>(call.send);
  auto* receive = static_cast<char*>(call.receive);
  for (const int other : everybody_) {
    const auto index = static_cast<size_t>(other);
    const int64_t sends = call.send_counts[index] * item;
    const int64_t receives = call.receive_counts[index] * item;
    if (other != rank()) {
      send_to(other, send, sends, number, 0);
      receive_from(other, receive, receives, number, 0);
    } else if (sends > 0) {
      std::memcpy(receive, send, static_cast<size_t>(sends));
    }
    send += sends;
    receive += receives;
  }
  exchange(number, 0);
}

void GlooGroup::broadcast_flat(const Call& call, uint64_t number) {
  const int64_t bytes = call.shape.count * dtype_bytes(call.shape.dtype);
  if (rank() != call.shape.peer) {
    receive_from(call.shape.peer, call.receive, bytes, number, 0);
  } else {
    for (const int other : everybody_) {
      if (other != rank()) send_to(other, call.send, bytes, number, 0);
    }
  }
  exchange(number, 0);
}

}  // namespace tutti::comm
