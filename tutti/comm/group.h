// A process group and its collectives: one interface over all transports (shared memory, gloo,
// NCCL).
//
// A call only enqueues. It starts after everything that was enqueued on `stream` before it, and
// returns a Ticket; the buffers belong to the group until the ticket is done. Ticket::wait(stream)
// makes later work on the stream see the result. On the CPU a communication thread of the rank does
// the work, concurrently with the rank's own computation; waiting blocks the calling thread. In
// shared memory nothing is allocated after the first call of a kind.
//
// Order. The collectives of a group run one after the other in the order of calls, which must be
// the same on all its ranks; so do the sends to one rank, and the receives from one rank, each in
// their own order. Nothing else is ordered: different groups, directions and peers progress
// independently, so exchanges in both directions do not deadlock, and a rank that passes a result
// on to another group, a transfer or a kernel waits for its ticket first.
//
// Memory. Each call states which overlap of its buffers works in place; other overlaps are not
// allowed. Types: f32, bf16, i32, i64; reductions of bf16 are accumulated in f32 in rank order and
// rounded once. Every rank gets the same bits, and the same operands give the same bits in every
// run. Empty buffers are legal.
//
// Devices. A stream whose operands are in a device's memory (engine/stream.h) may call any group: a
// transport over host memory copies operands there and results back, and the caller waits for the
// device at every call: slow, but correct.
//
// Errors. Ranks compare their calls: another operation, type, reduction, root or count throws peer
// naming both ranks and both calls, on every rank. When a rank calls abort(), is lost (its process
// ends), or leaves (destroys its group), every pending and later call on every other rank throws
// peer naming that rank, what it was doing, and the number of the call. Ticket::wait or the next
// call throws. A failed group stays failed; surviving ranks build a new World under a higher
// generation (comm/world/world.h).
//
// One thread of a rank uses a group at a time; abort(), activity() and Ticket::done() may be called
// from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/collectives/call.h"
#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::comm {

class Group;

// One call. Copies are cheap; valid as long as its group. Default constructed: done.
class Ticket {
 public:
  Ticket() = default;
  Ticket(Group* group, int32_t lane, uint64_t number)
      : group_(group), number_(number), lane_(lane) {}

  bool done() const;  // also when it failed
  // What is enqueued on `stream` from now on sees the result. Throws peer when the call failed (a
  // device's stream cannot know yet: there the next call throws).
  void wait(engine::Stream& stream) const;

 private:
  friend class Group;
  Group* group_ = nullptr;
  uint64_t number_ = 0;
  int32_t lane_ = 0;  // which of the group's queues
};

// Which collective a rank of a group is in, as it published it: for watchdogs. Read without
// stopping anybody, so a call that is just changing may show half of each. Messages are not shown.
struct RankActivity {
  int64_t rank = 0;          // in the world
  uint64_t calls = 0;        // collectives entered so far; the last one is number `calls`
  CallShape last;            // the last one
  bool inside = false;       // it has not left it yet
  double since_seconds = 0;  // monotonic time at which it entered (inside) or left it
  bool alive = true;         // false: its process has ended or it has left the group
};
// "rank 3: in all_reduce(sum, 1024 f32), call 17, for 12.3 s".
std::string activity_text(const RankActivity& activity, double now_seconds);

// From one rank of a group to another.
struct GroupLink {
  int from = 0, to = 0;
};

// The members of a group: for construction and messages.
struct GroupInfo {
  std::string name = "world";          // "dp", "dp x cp", ...
  int rank = 0;                        // this rank's index in the group
  std::vector<int64_t> members = {0};  // ranks of the world, ascending in the group's order
  uint64_t generation = 1;
  // Along which there will be send() and receive(), in one order on all ranks. A transport that
  // connects before the first call (NCCL) knows no others; the rest need none.
  std::vector<GroupLink> links = {};
  // Called on any thread, once or more, when the group has failed and before its calls throw: with
  // the message that they will throw.
  std::function<void(const std::string& message)> on_failure = {};

  int size() const { return static_cast<int>(members.size()); }
  int64_t world_rank() const { return members[static_cast<size_t>(rank)]; }
};

class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  int rank() const { return info_.rank; }
  int size() const { return info_.size(); }

  // receive[i] = reduction of all send[i]. In place: receive is send. Traffic per rank
  // 2 (n-1)/n of the buffer.
  Ticket all_reduce(engine::Stream& stream, engine::Vector send, engine::Vector receive,
                    Reduce reduce = Reduce::sum);

  // receive = slice `rank` of the reduction of all sends; send.count = size * receive.count.
  // In place: receive.data = send.data + rank * receive.count. Traffic (n-1)/n of send.
  Ticket reduce_scatter(engine::Stream& stream, engine::Vector send, engine::Vector receive,
                        Reduce reduce = Reduce::sum);

  // receive = the sends of rank 0, 1, ...; receive.count = size * send.count. In place: send.data =
  // receive.data + rank * send.count, which is then not written: code that watches that memory
  // still sees a bit that flips there meanwhile. Traffic (n-1)/n of receive.
  Ticket all_gather(engine::Stream& stream, engine::Vector send, engine::Vector receive);

  // send holds send_counts[r] elements for each rank r, one after the other; receive gets
  // receive_counts[r] from each; both sum up to the buffers' counts. receive_counts[r] here equals
  // send_counts[rank] on r. Not in place. The counts are copied.
  Ticket all_to_all(engine::Stream& stream, engine::Vector send, engine::Vector receive,
                    std::span<const int64_t> send_counts, std::span<const int64_t> receive_counts);
  // With equal counts: both buffers are `size` pieces of one length.
  Ticket all_to_all(engine::Stream& stream, engine::Vector send, engine::Vector receive);

  // buffer = that of rank `root`; in place by nature.
  Ticket broadcast(engine::Stream& stream, engine::Vector buffer, int root);

  // To and from one other rank; the n-th send to a rank meets its n-th receive from here, of the
  // same type and count.
  Ticket send(engine::Stream& stream, engine::Vector buffer, int peer);
  Ticket receive(engine::Stream& stream, engine::Vector buffer, int peer);

  // A step of a ring, which all ranks call at the same index among their collectives: `send` to the
  // next one and `receive` from the one before, of the same type and count on all of them.
  struct Shifted {
    Ticket sent, received;
    void wait(engine::Stream& stream) const;
  };
  Shifted shift(engine::Stream& stream, engine::Vector send, engine::Vector receive);

  // Done when every rank has come here.
  Ticket barrier(engine::Stream& stream);

  // Ends the group on all its ranks, for `reason`: their pending and later calls throw. Never
  // blocks and never throws. The first reason counts.
  void abort(const std::string& reason);

  // Whether calls on this stream copy their operands to the host's memory and back, for which the
  // caller waits; else they only enqueue.
  bool stages(const engine::Stream& stream) const {
    return stream.memory() == engine::ArenaKind::device && !takes_device_memory();
  }

  // Whether calls of this rank, in all its groups that say so, start in the order in which they
  // were made. A call that cannot start yet then keeps back those after it: a receive is asked for
  // where its message is needed, and not before what its sender needs for it (comm/nccl/group.h).
  virtual bool starts_in_order() const { return false; }

  // How long callers have been kept by Ticket::wait, in total: what communication, and waiting for
  // other ranks, has cost them.
  double waited_seconds() const { return waited_seconds_.load(std::memory_order_relaxed); }

  // Of every rank, in the group's order. A transport that cannot see others reports this rank only.
  virtual std::vector<RankActivity> activity() const = 0;

  // Fails this group, on all its ranks, with a message that says everything already.
  virtual void fail_with(const std::string& message) = 0;

 protected:
  explicit Group(GroupInfo info);

  // A legal call, not of a group of one. Throws peer when the group has failed.
  virtual Ticket enqueue(engine::Stream& stream, const Call& call) = 0;
  // Both of a shift; here each on its own.
  virtual Shifted enqueue_shift(engine::Stream& stream, const Call& send, const Call& receive) {
    return {enqueue(stream, send), enqueue(stream, receive)};
  }
  virtual bool done(int32_t lane, uint64_t number) const = 0;
  virtual void wait(engine::Stream& stream, int32_t lane, uint64_t number) = 0;
  // Whether enqueue() takes operands in a device's memory.
  virtual bool takes_device_memory() const { return false; }
  void report_failure(const std::string& message) const {
    if (info_.on_failure) info_.on_failure(message);
  }

 private:
  friend class Ticket;
  // A call on copies of a device's operands.
  struct Staged {
    int32_t lane = 0;
    uint64_t number = 0;
    bool transfer = false;
    std::vector<char> send, receive;
    void* to = nullptr;  // of receive; null: nothing comes back
  };
  Ticket submit(engine::Stream& stream, const Call& call, int64_t record_count);
  void note(engine::Stream& stream, const Call& call, int64_t record_count) const;
  Ticket submit_staged(engine::Stream& stream, const Call& call);
  // Brings back what this call has received, and of a collective those before it.
  void bring_back(engine::Stream& stream, int32_t lane, uint64_t number);

  GroupInfo info_;
  std::atomic<double> waited_seconds_{0};
  std::vector<int64_t> equal_counts_;
  std::list<Staged> staged_;
};

}  // namespace tutti::comm
