#include "tutti/comm/group.h"

#include <algorithm>
#include <numeric>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/units.h"

namespace tutti::comm {
namespace {

using engine::Stream;
using engine::Vector;

bool is_supported(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i32 || dtype == DType::i64;
}

bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto* x = static_cast<const char*>(a);
  const auto* y = static_cast<const char*>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

// Buffers of one type that are either apart, or in place: `inner` at `inner_offset` bytes into
// `outer`.
void check_buffers(const Group& group, const char* what, const Vector& outer, const Vector& inner,
                   int64_t inner_offset) {
  TUTTI_CHECK(outer.dtype == inner.dtype && is_supported(outer.dtype), "{} {}: types {} and {}",
              group.name(), what, dtype_name(outer.dtype), dtype_name(inner.dtype));
  TUTTI_CHECK(outer.count >= 0 && inner.count >= 0, "{} {}: counts {} and {}", group.name(), what,
              outer.count, inner.count);
  const bool in_place =
      inner_offset >= 0 && static_cast<char*>(outer.data) + inner_offset == inner.data;
  TUTTI_CHECK(in_place || !overlap(outer.data, outer.bytes(), inner.data, inner.bytes()),
              "{} {}: buffers overlap, but not as in place", group.name(), what);
}

int64_t total(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// All of a group of one: results are copies.
void run_alone(Stream& stream, const Call& call) {
  if (call.send == nullptr || call.receive == nullptr || call.send == call.receive) return;
  const int64_t count =
      call.shape.kind == CallKind::all_to_all ? total(call.send_counts) : call.shape.count;
  stream.transfer(call.receive, call.send, count * dtype_bytes(call.shape.dtype));
}

// Elements of both operands.
struct Counts {
  int64_t send = 0;
  int64_t receive = 0;
};
Counts counts_of(const Call& call, int ranks) {
  const int64_t count = call.shape.count;
  switch (call.shape.kind) {
    case CallKind::reduce_scatter: return {count * ranks, count};
    case CallKind::all_gather: return {count, count * ranks};
    case CallKind::all_to_all: return {total(call.send_counts), total(call.receive_counts)};
    case CallKind::send: return {count, 0};
    case CallKind::receive: return {0, count};
    case CallKind::barrier: return {0, 0};
    default: return {count, count};
  }
}

}  // namespace

bool Ticket::done() const { return group_ == nullptr || group_->done(lane_, number_); }

void Ticket::wait(Stream& stream) const {
  if (group_ == nullptr) return;
  const double begin = monotonic_seconds();
  group_->wait(stream, lane_, number_);
  group_->bring_back(stream, lane_, number_);
  const double waited = monotonic_seconds() - begin;  // one thread at a time waits
  group_->waited_seconds_.store(group_->waited_seconds() + waited, std::memory_order_relaxed);
}

std::string activity_text(const RankActivity& activity, double now_seconds) {
  std::string text = fmt::format("rank {}: ", activity.rank);
  if (!activity.alive) text += "gone; ";
  if (activity.calls == 0) return text + "no collective yet";
  return text + fmt::format("{} {}, call {}, {} {}", activity.inside ? "in" : "last left",
                            call_text(activity.last), activity.calls,
                            activity.inside ? "for" : "idle for",
                            format_seconds(std::max(0.0, now_seconds - activity.since_seconds)));
}

Group::Group(GroupInfo info) : info_(std::move(info)) {
  TUTTI_CHECK(info_.size() > 0 && info_.rank >= 0 && info_.rank < info_.size(),
              "group {}: rank {} of {}", info_.name, info_.rank, info_.size());
}

void Group::note(Stream& stream, const Call& call, int64_t record_count) const {
  if (stream.recorder() == nullptr || call.shape.kind == CallKind::barrier) return;
  engine::OpRecord record;
  record.op = call_name(call.shape.kind);
  const int64_t bytes = record_count * dtype_bytes(call.shape.dtype);
  record.dims = {bytes, size()};
  record.bytes = static_cast<double>(bytes);
  record.begin_seconds = record.end_seconds = monotonic_seconds();
  stream.recorder()->add(record);
}

Ticket Group::submit(Stream& stream, const Call& call, int64_t record_count) {
  note(stream, call, record_count);
  if (size() == 1) {
    run_alone(stream, call);
    return {};
  }
  return stages(stream) ? submit_staged(stream, call) : enqueue(stream, call);
}

Ticket Group::submit_staged(Stream& stream, const Call& call) {
  const bool transfer = is_transfer(call.shape.kind);
  if (!transfer) {
    // A collective may take what the one before it gave, whose ticket has not been waited for.
    const auto last = std::find_if(staged_.rbegin(), staged_.rend(),
                                   [](const Staged& one) { return !one.transfer; });
    if (last != staged_.rend()) Ticket(this, last->lane, last->number).wait(stream);
  }
  const int64_t item = dtype_bytes(call.shape.dtype);
  const Counts counts = counts_of(call, size());
  Staged& staged = staged_.emplace_back();
  staged.transfer = transfer;
  Call here = call;
  if (counts.send > 0) {
    staged.send.resize(static_cast<size_t>(counts.send * item));
    stream.transfer(staged.send.data(), call.send, counts.send * item);
    stream.synchronize();
    here.send = staged.send.data();
  }
  if (counts.receive > 0) {
    staged.receive.resize(static_cast<size_t>(counts.receive * item));
    staged.to = call.receive;
    here.receive = staged.receive.data();
    if (call.shape.kind == CallKind::broadcast) {  // one buffer, which the root's fills
      staged.receive = staged.send;
      here.send = here.receive = staged.receive.data();
    }
  }
  try {
    const Ticket ticket = enqueue(stream, here);
    staged.lane = ticket.lane_;
    staged.number = ticket.number_;
    return ticket;
  } catch (const Error&) {
    staged_.pop_back();
    throw;
  }
}

void Group::bring_back(Stream& stream, int32_t lane, uint64_t number) {
  const auto is_meant = [&](const Staged& one) { return one.lane == lane && one.number == number; };
  const auto meant = std::find_if(staged_.begin(), staged_.end(), is_meant);
  if (meant == staged_.end()) return;
  // Collectives are done in their order, transfers each for itself.
  const bool transfer = meant->transfer;
  staged_.remove_if([&](const Staged& one) {
    const bool earlier = !transfer && !one.transfer && one.lane == lane && one.number < number;
    if (!earlier && !is_meant(one)) return false;
    if (one.to != nullptr) {
      stream.transfer(one.to, one.receive.data(), static_cast<int64_t>(one.receive.size()));
    }
    return true;
  });
}

Ticket Group::all_reduce(Stream& stream, Vector send, Vector receive, Reduce reduce) {
  check_buffers(*this, "all_reduce", send, receive, 0);
  TUTTI_CHECK(send.count == receive.count, "{} all_reduce: {} to {} elements", name(), send.count,
              receive.count);
  Call call;
  call.shape = {CallKind::all_reduce, send.dtype, reduce, -1, send.count};
  call.send = send.data;
  call.receive = receive.data;
  return submit(stream, call, send.count);
}

Ticket Group::reduce_scatter(Stream& stream, Vector send, Vector receive, Reduce reduce) {
  check_buffers(*this, "reduce_scatter", send, receive, rank() * receive.bytes());
  TUTTI_CHECK(send.count == size() * receive.count, "{} reduce_scatter: {} to {} x {} elements",
              name(), send.count, size(), receive.count);
  Call call;
  call.shape = {CallKind::reduce_scatter, send.dtype, reduce, -1, receive.count};
  call.send = send.data;
  call.receive = receive.data;
  return submit(stream, call, send.count);
}

Ticket Group::all_gather(Stream& stream, Vector send, Vector receive) {
  check_buffers(*this, "all_gather", receive, send, rank() * send.bytes());
  TUTTI_CHECK(receive.count == size() * send.count, "{} all_gather: {} x {} to {} elements", name(),
              size(), send.count, receive.count);
  Call call;
  call.shape = {CallKind::all_gather, send.dtype, Reduce::sum, -1, send.count};
  call.send = send.data;
  call.receive = receive.data;
  return submit(stream, call, receive.count);
}

Ticket Group::all_to_all(Stream& stream, Vector send, Vector receive,
                         std::span<const int64_t> send_counts,
                         std::span<const int64_t> receive_counts) {
  check_buffers(*this, "all_to_all", send, receive, -1);
  TUTTI_CHECK(
      send_counts.size() == info_.members.size() && receive_counts.size() == info_.members.size(),
      "{} all_to_all: {} and {} counts for {} ranks", name(), send_counts.size(),
      receive_counts.size(), size());
  TUTTI_CHECK(total(send_counts) == send.count && total(receive_counts) == receive.count,
              "{} all_to_all: counts add up to {} and {} of {} and {} elements", name(),
              total(send_counts), total(receive_counts), send.count, receive.count);
  const auto is_count = [](int64_t count) { return count >= 0; };
  TUTTI_CHECK(std::all_of(send_counts.begin(), send_counts.end(), is_count) &&
                  std::all_of(receive_counts.begin(), receive_counts.end(), is_count),
              "{} all_to_all: a negative count", name());
  Call call;
  call.shape = {CallKind::all_to_all, send.dtype, Reduce::sum, -1, 0};
  call.send = send.data;
  call.receive = receive.data;
  call.send_counts = send_counts;
  call.receive_counts = receive_counts;
  return submit(stream, call, send.count);
}

Ticket Group::all_to_all(Stream& stream, Vector send, Vector receive) {
  TUTTI_CHECK(send.count == receive.count && send.count % size() == 0,
              "{} all_to_all: {} to {} elements on {} ranks", name(), send.count, receive.count,
              size());
  equal_counts_.assign(info_.members.size(), send.count / size());
  return all_to_all(stream, send, receive, equal_counts_, equal_counts_);
}

Ticket Group::broadcast(Stream& stream, Vector buffer, int root) {
  TUTTI_CHECK(is_supported(buffer.dtype) && buffer.count >= 0, "{} broadcast: {} {}", name(),
              buffer.count, dtype_name(buffer.dtype));
  TUTTI_CHECK(root >= 0 && root < size(), "{} broadcast: root {} of {}", name(), root, size());
  Call call;
  call.shape = {CallKind::broadcast, buffer.dtype, Reduce::sum, root, buffer.count};
  call.send = buffer.data;
  call.receive = buffer.data;
  return submit(stream, call, buffer.count);
}

Ticket Group::send(Stream& stream, Vector buffer, int peer) {
  TUTTI_CHECK(is_supported(buffer.dtype) && buffer.count >= 0, "{} send: {} {}", name(),
              buffer.count, dtype_name(buffer.dtype));
  TUTTI_CHECK(peer >= 0 && peer < size() && peer != rank(), "{} send: rank {} to {} of {}", name(),
              rank(), peer, size());
  Call call;
  call.shape = {CallKind::send, buffer.dtype, Reduce::sum, peer, buffer.count};
  call.send = buffer.data;
  return submit(stream, call, buffer.count);
}

Ticket Group::receive(Stream& stream, Vector buffer, int peer) {
  TUTTI_CHECK(is_supported(buffer.dtype) && buffer.count >= 0, "{} receive: {} {}", name(),
              buffer.count, dtype_name(buffer.dtype));
  TUTTI_CHECK(peer >= 0 && peer < size() && peer != rank(), "{} receive: rank {} from {} of {}",
              name(), rank(), peer, size());
  Call call;
  call.shape = {CallKind::receive, buffer.dtype, Reduce::sum, peer, buffer.count};
  call.receive = buffer.data;
  return submit(stream, call, buffer.count);
}

void Group::Shifted::wait(Stream& stream) const {
  received.wait(stream);
  sent.wait(stream);
}

Group::Shifted Group::shift(Stream& stream, Vector send, Vector receive) {
  check_buffers(*this, "shift", send, receive, -1);
  TUTTI_CHECK(send.count == receive.count && size() > 1, "{} shift: {} to {} elements on {} ranks",
              name(), send.count, receive.count, size());
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  if (stages(stream)) {
    return {this->send(stream, send, next), this->receive(stream, receive, previous)};
  }
  Call out, in;
  out.shape = {CallKind::send, send.dtype, Reduce::sum, next, send.count};
  out.send = send.data;
  in.shape = {CallKind::receive, receive.dtype, Reduce::sum, previous, receive.count};
  in.receive = receive.data;
  note(stream, out, send.count);
  note(stream, in, receive.count);
  return enqueue_shift(stream, out, in);
}

Ticket Group::barrier(Stream& stream) {
  Call call;
  call.shape.kind = CallKind::barrier;
  return submit(stream, call, 0);
}

void Group::abort(const std::string& reason) {
  std::string where = "before its first collective";
  for (const RankActivity& activity : this->activity()) {
    if (activity.rank != info_.world_rank() || activity.calls == 0) continue;
    where = fmt::format("{} {}, call {}", activity.inside ? "in" : "after",
                        call_text(activity.last), activity.calls);
  }
  const std::string message =
      fmt::format("group {}: aborted by rank {} {}: {}", name(), info_.world_rank(), where, reason);
  fail_with(message);
  report_failure(message);
}

}  // namespace tutti::comm
