// The collectives of a local group, in the three ways of group.h.
#include <algorithm>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/comm/collectives/partition.h"
#include "tutti/comm/local/group.h"
#include "tutti/engine/cpu/reduce.h"

namespace tutti::comm {
namespace {

// Elements [round * length, ...) of `count`.
Part round_of(int64_t count, int64_t round, int64_t length) {
  const int64_t begin = std::min(count, round * length);
  return {begin, std::min(count - begin, length)};
}

int64_t sum_before(std::span<const int64_t> counts, int rank) {
  int64_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += counts[static_cast<size_t>(r)];
  return sum;
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Bytes of the data that a rank publishes with the call; -1: too uneven to be decided alike.
int64_t inline_bytes(const CallShape& shape, int size) {
  const int64_t bytes = shape.count * dtype_bytes(shape.dtype);
  switch (shape.kind) {
    case CallKind::reduce_scatter: return bytes * size;
    case CallKind::all_to_all: return -1;
    default: return bytes;
  }
}

bool is_inlined(const CallShape& shape, int size) {
  const int64_t bytes = inline_bytes(shape, size);
  return bytes >= 0 && bytes <= ControlBlock::kInlineBytes;
}

}  // namespace

const PublishedCall& LocalGroup::published(int rank) const {
  return block_.slot(rank).published[collective_ % 2];
}

void LocalGroup::publish(const Call& call) {
  PublishedCall& mine = block_.slot(rank()).published[collective_ % 2];
  mine.shape = call.shape;
  mine.number = collective_;
  const int64_t item = dtype_bytes(call.shape.dtype);
  const int64_t count = call.shape.count;
  int64_t send = count;
  int64_t receive = count;
  if (call.shape.kind == CallKind::reduce_scatter) send = count * size();
  if (call.shape.kind == CallKind::all_gather) receive = count * size();
  if (call.shape.kind == CallKind::all_to_all) {
    send = sum_before(call.send_counts, size());
    receive = sum_before(call.receive_counts, size());
    int64_t* counts = block_.counts(collective_, rank());
    std::copy(call.send_counts.begin(), call.send_counts.end(), counts);
    std::copy(call.receive_counts.begin(), call.receive_counts.end(), counts + size());
  }
  mine.send = memory_->locate(call.send, send * item);
  mine.receive = memory_->locate(call.receive, receive * item);
  if (is_inlined(call.shape, size())) {
    copy_bytes(block_.inline_data(collective_, rank()), call.send,
               inline_bytes(call.shape, size()));
  }
}

bool LocalGroup::step_collective() {
  const uint64_t number = collectives_.front();
  const Call& call = queue_.at(number);
  const auto arrive = [&](Stage next) {
    block_.arrive(++phase_);
    progress_.stage = next;
  };
  if (progress_.stage == Stage::start) {
    ++collective_;
    note_entered(call.shape);
    publish(call);
    arrive(Stage::meet);
  }
  if (!block_.all_arrived(phase_)) return false;
  switch (progress_.stage) {
    case Stage::start: break;
    case Stage::meet:
      check_calls(call);
      if (block_.failed()) return false;
      plan(call);
      if (progress_.way == Way::inlined) {
        work_inline(call);
        complete_collective();
      } else if (progress_.way == Way::direct) {
        if (!with_peer_buffers([&] { work_direct(call); })) return false;
        arrive(Stage::leave);
      } else if (progress_.rounds == 0) {
        complete_collective();
      } else {
        copy_in(call);
        arrive(Stage::gathered);
      }
      break;
    case Stage::gathered:
      work_staged(call);
      if (call.shape.kind == CallKind::all_reduce) {
        arrive(Stage::reduced);
      } else {
        next_round(call);
      }
      break;
    case Stage::reduced:
      copy_out(call);
      next_round(call);
      break;
    case Stage::leave: complete_collective(); break;
  }
  return true;
}

void LocalGroup::next_round(const Call& call) {
  ++turn_;
  if (++progress_.round == progress_.rounds) {
    complete_collective();
    return;
  }
  copy_in(call);
  block_.arrive(++phase_);
  progress_.stage = Stage::gathered;
}

void LocalGroup::complete_collective() {
  note_left();
  const uint64_t number = collectives_.front();
  collectives_.pop();
  progress_ = {};
  queue_.complete(number);
}

// All ranks see the same calls, so all report a difference alike.
void LocalGroup::check_calls(const Call& call) {
  const auto differs = [&](int other, const std::string& mine, const std::string& theirs) {
    block_.fail(fmt::format(
        "group {}: ranks ask for different things in call {}: rank {} {}, rank {} {}", name(),
        collective_, info().members[0], mine, info().members[static_cast<size_t>(other)], theirs));
  };
  const PublishedCall& first = published(0);
  for (int other = 1; other < size(); ++other) {
    const PublishedCall& theirs = published(other);
    if (theirs.shape != first.shape || theirs.number != first.number) {
      return differs(other, call_text(first.shape), call_text(theirs.shape));
    }
  }
  if (call.shape.kind != CallKind::all_to_all) return;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const int64_t sends = block_.counts(collective_, from)[to];
      const int64_t receives = block_.counts(collective_, to)[size() + from];
      if (sends == receives) continue;
      block_.fail(fmt::format(
          "group {}: ranks ask for different things in call {}: in all_to_all rank {} sends {} "
          "elements to rank {}, which expects {}",
          name(), collective_, info().members[static_cast<size_t>(from)], sends,
          info().members[static_cast<size_t>(to)], receives));
      return;
    }
  }
}

bool LocalGroup::all_reachable(CallKind kind, int root) const {
  const auto is_reachable = [](const Location& at) { return at.arena != Location::kUnreachable; };
  for (int other = 0; other < size(); ++other) {
    if (kind == CallKind::broadcast && other != root) continue;
    const PublishedCall& call = published(other);
    if (!is_reachable(call.send)) return false;
    if (kind == CallKind::all_reduce && !is_reachable(call.receive)) return false;
  }
  return true;
}

void LocalGroup::plan(const Call& call) {
  progress_.round = progress_.rounds = 0;
  if (is_inlined(call.shape, size())) {
    progress_.way = Way::inlined;
  } else if (all_reachable(call.shape.kind, call.shape.peer)) {
    progress_.way = Way::direct;
  } else {
    progress_.way = Way::staged;
    progress_.rounds = round_count(call);
  }
}

void LocalGroup::work_inline(const Call& call) {
  const CallShape& shape = call.shape;
  const int64_t bytes = shape.count * dtype_bytes(shape.dtype);
  auto* receive = static_cast<char*>(call.receive);
  switch (shape.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_scatter: {
      const int64_t begin = shape.kind == CallKind::reduce_scatter ? rank() * bytes : 0;
      for (int other = 0; other < size(); ++other) {
        sources_[static_cast<size_t>(other)] = block_.inline_data(collective_, other) + begin;
      }
      void* const destination = receive;
      engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&destination, 1}, shape.count);
      break;
    }
    case CallKind::all_gather:
      for (int other = 0; other < size(); ++other) {
        const void* from = other == rank() ? call.send : block_.inline_data(collective_, other);
        copy_bytes(receive + other * bytes, from, bytes);
      }
      break;
    case CallKind::broadcast:
      if (shape.peer != rank()) {
        copy_bytes(receive, block_.inline_data(collective_, shape.peer), bytes);
      }
      break;
    default: break;  // barrier
  }
}

void LocalGroup::work_direct(const Call& call) {
  const CallShape& shape = call.shape;
  const int64_t item = dtype_bytes(shape.dtype);
  auto* receive = static_cast<char*>(call.receive);
  const auto send_of = [&](int other) {
    return memory_->reach(local_ranks_[static_cast<size_t>(other)], published(other).send);
  };
  switch (shape.kind) {
    case CallKind::all_reduce: {
      const Part part = part_of(shape.count, item, rank(), size());
      for (int other = 0; other < size(); ++other) {
        const auto index = static_cast<size_t>(other);
        sources_[index] = send_of(other) + part.begin * item;
        destinations_[index] =
            memory_->reach(local_ranks_[index], published(other).receive) + part.begin * item;
      }
      engine::reduce_elements(shape.reduce, shape.dtype, sources_, destinations_, part.count);
      break;
    }
    case CallKind::reduce_scatter: {
      for (int other = 0; other < size(); ++other) {
        sources_[static_cast<size_t>(other)] = send_of(other) + rank() * shape.count * item;
      }
      void* const destination = receive;
      engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&destination, 1}, shape.count);
      break;
    }
    case CallKind::all_gather:
      for (int step = 0; step < size(); ++step) {  // not all from the same rank at a time
        const int other = (rank() + step) % size();
        copy_bytes(receive + other * shape.count * item, send_of(other), shape.count * item);
      }
      break;
    case CallKind::broadcast:
      if (shape.peer != rank()) copy_bytes(receive, send_of(shape.peer), shape.count * item);
      break;
    case CallKind::all_to_all:
      for (int step = 0; step < size(); ++step) {
        const int other = (rank() + step) % size();
        const int64_t* counts = block_.counts(collective_, other);
        const std::span<const int64_t> theirs(counts, static_cast<size_t>(size()));
        copy_bytes(receive + sum_before(call.receive_counts, other) * item,
                   send_of(other) + sum_before(theirs, rank()) * item, counts[rank()] * item);
      }
      break;
    default: break;
  }
}

// Staging memory of a rank holds, per round: all_reduce, all_gather, broadcast: kStagingBytes of
// the buffer; reduce_scatter, all_to_all: a piece for every rank, kStagingBytes / size each.

int64_t LocalGroup::round_count(const Call& call) const {
  const int64_t whole = ControlBlock::kStagingBytes / dtype_bytes(call.shape.dtype);
  const int64_t piece = whole / size();
  const auto rounds = [](int64_t count, int64_t length) { return (count + length - 1) / length; };
  switch (call.shape.kind) {
    case CallKind::reduce_scatter: return rounds(call.shape.count, piece);
    case CallKind::all_to_all: {
      int64_t most = 0;
      for (int other = 0; other < size(); ++other) {
        const int64_t* counts = block_.counts(collective_, other);
        most = std::max(most, *std::max_element(counts, counts + size()));
      }
      return rounds(most, piece);
    }
    default: return rounds(call.shape.count, whole);
  }
}

void LocalGroup::copy_in(const Call& call) {
  const CallShape& shape = call.shape;
  const int64_t item = dtype_bytes(shape.dtype);
  const int64_t whole = ControlBlock::kStagingBytes / item;
  const int64_t piece = whole / size();
  const auto* send = static_cast<const char*>(call.send);
  char* mine = block_.staging(turn_, rank());
  if (shape.kind == CallKind::broadcast && shape.peer != rank()) return;
  if (shape.kind != CallKind::reduce_scatter && shape.kind != CallKind::all_to_all) {
    const Part part = round_of(shape.count, progress_.round, whole);
    return copy_bytes(mine, send + part.begin * item, part.count * item);
  }
  int64_t begin = 0;
  for (int other = 0; other < size(); ++other) {
    const int64_t count = shape.kind == CallKind::reduce_scatter
                              ? shape.count
                              : call.send_counts[static_cast<size_t>(other)];
    const Part part = round_of(count, progress_.round, piece);
    copy_bytes(mine + other * piece * item, send + (begin + part.begin) * item, part.count * item);
    begin += count;
  }
}

void LocalGroup::work_staged(const Call& call) {
  const CallShape& shape = call.shape;
  const int64_t item = dtype_bytes(shape.dtype);
  const int64_t whole = ControlBlock::kStagingBytes / item;
  const int64_t piece = whole / size();
  auto* receive = static_cast<char*>(call.receive);
  const Part round = round_of(shape.count, progress_.round, whole);
  switch (shape.kind) {
    case CallKind::all_reduce: {
      const Part part = part_of(round.count, item, rank(), size());
      for (int other = 0; other < size(); ++other) {
        sources_[static_cast<size_t>(other)] = block_.staging(turn_, other) + part.begin * item;
      }
      void* const destination = block_.staging(turn_, rank()) + part.begin * item;
      engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&destination, 1}, part.count);
      break;
    }
    case CallKind::reduce_scatter: {
      const Part part = round_of(shape.count, progress_.round, piece);
      for (int other = 0; other < size(); ++other) {
        sources_[static_cast<size_t>(other)] = block_.staging(turn_, other) + rank() * piece * item;
      }
      void* const destination = receive + part.begin * item;
      engine::reduce_elements(shape.reduce, shape.dtype, sources_, {&destination, 1}, part.count);
      break;
    }
    case CallKind::all_gather:
      for (int other = 0; other < size(); ++other) {
        const char* from = other == rank()
                               ? static_cast<const char*>(call.send) + round.begin * item
                               : block_.staging(turn_, other);
        copy_bytes(receive + (other * shape.count + round.begin) * item, from, round.count * item);
      }
      break;
    case CallKind::broadcast:
      if (shape.peer != rank()) {
        copy_bytes(receive + round.begin * item, block_.staging(turn_, shape.peer),
                   round.count * item);
      }
      break;
    case CallKind::all_to_all: {
      int64_t begin = 0;
      for (int other = 0; other < size(); ++other) {
        const int64_t count = call.receive_counts[static_cast<size_t>(other)];
        const Part part = round_of(count, progress_.round, piece);
        copy_bytes(receive + (begin + part.begin) * item,
                   block_.staging(turn_, other) + rank() * piece * item, part.count * item);
        begin += count;
      }
      break;
    }
    default: break;
  }
}

void LocalGroup::copy_out(const Call& call) {
  const int64_t item = dtype_bytes(call.shape.dtype);
  const Part round =
      round_of(call.shape.count, progress_.round, ControlBlock::kStagingBytes / item);
  auto* receive = static_cast<char*>(call.receive) + round.begin * item;
  for (int other = 0; other < size(); ++other) {
    const Part part = part_of(round.count, item, other, size());
    copy_bytes(receive + part.begin * item, block_.staging(turn_, other) + part.begin * item,
               part.count * item);
  }
}

}  // namespace tutti::comm
