#include "tutti/comm/local/group.h"

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti::comm {
namespace {

constexpr double kCheckSeconds = 0.1;  // between looks at whether others still live

// dtype, reduce, kind and root of a call in one word.
uint64_t pack_kind(const CallShape& shape) {
  return static_cast<uint64_t>(shape.kind) | static_cast<uint64_t>(shape.dtype) << 8 |
         static_cast<uint64_t>(shape.reduce) << 16 |
         static_cast<uint64_t>(static_cast<uint32_t>(shape.peer)) << 32;
}
CallShape unpack_kind(uint64_t word, int64_t count) {
  return {static_cast<CallKind>(word & 0xff), static_cast<DType>(word >> 8 & 0xff),
          static_cast<Reduce>(word >> 16 & 0xff), static_cast<int32_t>(word >> 32), count};
}

}  // namespace

int64_t local_group_bytes(int size) { return ControlBlock::bytes(size); }

LocalGroup::LocalGroup(LocalGroupOptions options)
    : Group(std::move(options.info)),
      block_(std::move(options.segment), rank(), size(), info().generation, options.create,
             options.timeout_seconds),
      memory_(std::move(options.memory)),
      local_ranks_(std::move(options.local_ranks)),
      threads_(options.threads),
      // Spinning on a core that another rank needs only delays it. Threads share their cores with
      // the ranks of other groups, too; processes are bound to cores of their own.
      spins_((threads_ ? options.host_ranks : size()) <= describe_machine().cores),
      sends_(static_cast<size_t>(size())),
      receives_(static_cast<size_t>(size())),
      sources_(static_cast<size_t>(size())),
      destinations_(static_cast<size_t>(size())) {
  TUTTI_CHECK(local_ranks_.size() == info().members.size(), "{} local_ranks of {} members",
              local_ranks_.size(), size());
  block_.enter(threads_);
  await_members(options.timeout_seconds);
  thread_ = std::thread([this] { run(); });
}

LocalGroup::~LocalGroup() {
  closing_.store(true);
  block_.ring(rank());
  thread_.join();
  block_.leave();
}

void LocalGroup::await_members(double timeout_seconds) {
  const double end = monotonic_seconds() + timeout_seconds;
  std::vector<std::string> here;
  std::vector<std::string> missing;
  while (true) {
    const uint32_t bell = block_.slot(rank()).doorbell.rings();
    here.clear();
    missing.clear();
    for (int other = 0; other < size(); ++other) {
      const auto presence = static_cast<Presence>(block_.slot(other).presence.load());
      (presence == Presence::expected ? missing : here)
          .push_back(std::to_string(info().members[static_cast<size_t>(other)]));
    }
    if (missing.empty()) return;
    if (block_.failed()) throw Error(ErrorKind::peer, block_.message());
    const double left = end - monotonic_seconds();
    if (left <= 0) break;
    block_.wait(bell, false, std::min(left, kCheckSeconds));
  }
  const std::string message =
      fmt::format("group {}: ranks {} of {} did not arrive within {}; arrived: {}", name(),
                  join(missing, ", "), size(), format_seconds(timeout_seconds), join(here, ", "));
  block_.fail(message);
  block_.leave();
  throw Error(ErrorKind::peer, block_.message());
}

Ticket LocalGroup::enqueue(engine::Stream& stream, const Call& call) {
  stream.synchronize();
  if (block_.failed()) {  // the communication thread may not have seen it yet
    report_failure(block_.message());
    throw Error(ErrorKind::peer, block_.message());
  }
  const uint64_t number = queue_.submit(call);
  block_.ring(rank());
  return {this, 0, number};
}

bool LocalGroup::done(int32_t /*lane*/, uint64_t number) const { return queue_.done(number); }

void LocalGroup::wait(engine::Stream& /*stream*/, int32_t /*lane*/, uint64_t number) {
  queue_.wait(number);
}

void LocalGroup::fail_with(const std::string& message) { block_.fail(message); }

std::vector<RankActivity> LocalGroup::activity() const {
  std::vector<RankActivity> out;
  for (int other = 0; other < size(); ++other) {
    const RankSlot& slot = block_.slot(other);
    RankActivity activity;
    activity.rank = info().members[static_cast<size_t>(other)];
    activity.calls = slot.calls.load();
    activity.last = unpack_kind(slot.call_kind.load(), slot.call_count.load());
    activity.inside = slot.inside.load() != 0;
    activity.since_seconds = static_cast<double>(slot.since_nanoseconds.load()) * 1e-9;
    activity.alive = block_.is_alive(other);
    out.push_back(activity);
  }
  return out;
}

void LocalGroup::note_entered(const CallShape& shape) {
  RankSlot& self = block_.slot(rank());
  self.call_kind.store(pack_kind(shape), std::memory_order_relaxed);
  self.call_count.store(shape.count, std::memory_order_relaxed);
  self.since_nanoseconds.store(static_cast<int64_t>(monotonic_seconds() * 1e9),
                               std::memory_order_relaxed);
  self.inside.store(1, std::memory_order_relaxed);
  self.calls.store(collective_, std::memory_order_relaxed);
}

void LocalGroup::note_left() {
  RankSlot& self = block_.slot(rank());
  self.since_nanoseconds.store(static_cast<int64_t>(monotonic_seconds() * 1e9),
                               std::memory_order_relaxed);
  self.inside.store(0, std::memory_order_relaxed);
}

bool LocalGroup::is_idle() const { return collectives_.empty() && pending_messages_ == 0; }

void LocalGroup::run() {
  while (!block_.failed()) {
    const uint32_t bell = block_.slot(rank()).doorbell.rings();
    bool moved = false;
    try {
      while (taken_ < queue_.submitted()) {
        const uint64_t number = ++taken_;
        const CallShape& shape = queue_.at(number).shape;
        if (!is_transfer(shape.kind)) {
          collectives_.push(number);
        } else {
          const auto peer = static_cast<size_t>(shape.peer);
          (shape.kind == CallKind::send ? sends_ : receives_)[peer].line.push(number);
          ++pending_messages_;
        }
      }
      moved = step();
    } catch (const Error& error) {
      block_.fail(fmt::format("group {}: rank {}: {}", name(), info().world_rank(), error.what()));
      break;
    }
    if (moved) continue;
    if (closing_.load()) {
      if (is_idle()) return;
      block_.fail(
          fmt::format("group {}: rank {} leaves with pending calls", name(), info().world_rank()));
      break;
    }
    if (block_.failed()) break;
    // When idle only the doorbell brings work. Otherwise a rank may have died.
    const bool rung = block_.wait(bell, spins_, is_idle() ? 3600.0 : kCheckSeconds);
    if (!is_idle()) check_members(!rung);
  }
  end_failed();
}

bool LocalGroup::step() {
  bool moved = !collectives_.empty() && step_collective();
  if (pending_messages_ == 0) return moved;
  for (int peer = 0; peer < size(); ++peer) {
    const auto index = static_cast<size_t>(peer);
    if (!sends_[index].line.empty()) moved = step_send(peer) || moved;
    if (!receives_[index].line.empty()) moved = step_receive(peer) || moved;
  }
  return moved;
}

// Fails the group when a rank that is waited for is gone. `processes`: ask the system, too.
void LocalGroup::check_members(bool processes) {
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const auto index = static_cast<size_t>(other);
    const RankSlot& slot = block_.slot(other);
    const bool left = slot.presence.load() == static_cast<uint32_t>(Presence::left);
    const bool killed = !left && processes && !block_.is_alive(other);
    if (!left && !killed) continue;
    // What a rank did before it left still counts. One that was killed may have been just about to
    // be counted, so it is missed in any case.
    const auto is_missed = [&] {
      return (!collectives_.empty() && progress_.stage != Stage::start &&
              (killed || slot.arrived.load() < phase_)) ||
             !sends_[index].line.empty() || !receives_[index].line.empty();
    };
    if (!is_missed() || step() || !is_missed()) continue;
    block_.fail(gone_text(other));
    return;
  }
}

std::string LocalGroup::gone_text(int rank) const {
  const RankActivity activity = this->activity()[static_cast<size_t>(rank)];
  const RankSlot& slot = block_.slot(rank);
  const bool left = slot.presence.load() == static_cast<uint32_t>(Presence::left);
  const std::string how =
      left ? "has left the group"
           : fmt::format("was lost: its process {} has ended", slot.process.load());
  const std::string what = activity.calls == 0
                               ? "before its first collective"
                               : fmt::format("{} {}, call {}", activity.inside ? "in" : "after",
                                             call_text(activity.last), activity.calls);
  return fmt::format("group {}: rank {} {}, {}", name(), activity.rank, how, what);
}

// The buffers of pending calls go back to their owner, so no rank may be using them any more.
void LocalGroup::end_failed() {
  for (int other = 0; other < size(); ++other) {
    while (other != rank() && block_.slot(other).working.load() != 0 && block_.is_alive(other)) {
      sleep_seconds(1e-4);
    }
  }
  // Announced first: a rank that learns of it through its calls may leave the other groups, without
  // a reason.
  report_failure(block_.message());
  queue_.fail(block_.message());
}

void LocalGroup::end_message(Message& message) {
  queue_.complete(message.line.front());
  message.line.pop();
  message.moved = 0;
  message.direct_piece = 0;
  ++message.messages;
  --pending_messages_;
}

}  // namespace tutti::comm
