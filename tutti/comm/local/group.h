// The group of ranks that share memory: threads of one process or processes of one host, through
// one control block (control_block.h).
//
// Each rank has a communication thread that steps through the calls it was given: the first
// collective, and the first message to and from every rank, each as far as it can go; then it
// sleeps on its doorbell.
//
// A collective is done in one of three ways, chosen alike on all ranks:
// - inline: small ones. Data is published with the call; one meeting, then every rank computes.
// - direct: when all buffers concerned are reachable (shared arenas; threads). A rank reads what it
//   needs from the buffers of the others; for all_reduce it reduces its slice of all of them and
//   writes the result into all of them: one pass, two meetings.
// - staged: otherwise. The same in rounds, through staging memory.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tutti/comm/collectives/call_queue.h"
#include "tutti/comm/group.h"
#include "tutti/comm/local/control_block.h"
#include "tutti/comm/local/peer_memory.h"

namespace tutti::comm {

struct LocalGroupOptions {
  GroupInfo info;
  std::shared_ptr<Segment> segment;  // of local_group_bytes(size)
  bool create = false;               // this rank formats it
  bool threads = false;              // all ranks are threads of this process
  int host_ranks = 0;                // ranks of the world on this host
  std::shared_ptr<PeerMemory> memory;
  std::vector<int> local_ranks;  // of the members in `memory`
  double timeout_seconds = 60;
};

int64_t local_group_bytes(int size);

class LocalGroup : public Group {
 public:
  // Returns when all members are there; throws peer naming those that are not.
  explicit LocalGroup(LocalGroupOptions options);
  ~LocalGroup() override;

  std::vector<RankActivity> activity() const override;
  void fail_with(const std::string& message) override;
  // Whether a rank that waits may look at its doorbell for a while before it sleeps.
  bool spins() const { return spins_; }

 protected:
  Ticket enqueue(engine::Stream& stream, const Call& call) override;
  bool done(int32_t lane, uint64_t number) const override;
  void wait(engine::Stream& stream, int32_t lane, uint64_t number) override;

 private:
  enum class Stage { start, meet, gathered, reduced, leave };
  enum class Way { inlined, direct, staged };

  // Numbers of calls that wait for each other.
  class Line {
   public:
    void push(uint64_t number) { numbers_[(begin_ + count_++) % CallQueue::kCapacity] = number; }
    void pop() { begin_ = (begin_ + 1) % CallQueue::kCapacity, --count_; }
    bool empty() const { return count_ == 0; }
    uint64_t front() const { return numbers_[begin_]; }

   private:
    std::vector<uint64_t> numbers_ = std::vector<uint64_t>(CallQueue::kCapacity);
    uint64_t begin_ = 0, count_ = 0;
  };
  // The state of the collective at the head of its line.
  struct Progress {
    Stage stage = Stage::start;
    Way way = Way::inlined;
    int64_t round = 0, rounds = 0;
  };
  // Of the message at the head of a line to or from one rank.
  struct Message {
    Line line;
    int64_t moved = 0;          // elements
    uint64_t direct_piece = 0;  // 1 + index of the piece that the receiver is to take
    uint64_t messages = 0;      // ended before
  };

  // group.cpp
  void await_members(double timeout_seconds);
  void run();
  bool step();
  bool is_idle() const;
  void check_members(bool processes);
  std::string gone_text(int rank) const;
  void end_failed();

  // collective.cpp
  bool step_collective();
  void publish(const Call& call);
  void check_calls(const Call& call);
  bool all_reachable(CallKind kind, int root) const;
  void plan(const Call& call);
  void complete_collective();
  void next_round(const Call& call);
  void work_inline(const Call& call);
  void work_direct(const Call& call);
  void copy_in(const Call& call);
  void work_staged(const Call& call);
  void copy_out(const Call& call);
  int64_t round_count(const Call& call) const;
  const PublishedCall& published(int rank) const;

  // transfer.cpp
  bool step_send(int peer);
  bool step_receive(int peer);

  void end_message(Message& message);

  // Calls body() while the buffers of other ranks may be used; false, and not at all, after a
  // failure.
  template <typename Body>
  bool with_peer_buffers(const Body& body) {
    struct Working {
      std::atomic<uint32_t>& flag;
      explicit Working(std::atomic<uint32_t>& working) : flag(working) { flag.store(1); }
      ~Working() { flag.store(0); }
    };
    const Working working(
        block_.slot(rank()).working);  // a failing rank that takes buffers back waits
    const bool usable = !block_.failed();
    if (usable) body();
    return usable;
  }
  void note_entered(const CallShape& shape);
  void note_left();

  ControlBlock block_;
  std::shared_ptr<PeerMemory> memory_;
  std::vector<int> local_ranks_;
  bool threads_ = false;
  bool spins_ = false;
  CallQueue queue_;
  std::atomic<bool> closing_{false};

  // Of the communication thread.
  uint64_t taken_ = 0;  // calls taken from the queue
  Line collectives_;
  std::vector<Message> sends_, receives_;  // per rank
  int pending_messages_ = 0;
  Progress progress_;
  uint64_t collective_ = 0;  // number of the current or last collective
  uint64_t phase_ = 0;       // arrived at
  uint64_t turn_ = 0;        // of staging memory
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tutti::comm
