// The group of ranks on several hosts, over TCP (link.h).
//
// A communication thread executes collectives; one thread per peer and direction executes messages.
// Every collective begins with an exchange of what each rank was asked for, and that they are ready
// to receive it; where it can be before the data of the one before are sent, so that the network is
// not idle between two. Reductions are our own (gloo of Debian 12 has neither bf16 nor a fixed
// order): rank r gets part r of all, reduces it in rank order, and gives it to the others. Where a
// host has several of the ranks, large all_reduce calls go through its local group first, then
// between the first ranks of the hosts, then through the local groups again; sums of bf16 travel as
// f32 meanwhile, so that they are rounded once.
//
// A rank that fails leaves the reason in the store and closes its connections; the others find it
// there. A lost rank is recognized by its connections.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/collectives/call_queue.h"
#include "tutti/comm/gloo/link.h"
#include "tutti/comm/group.h"

namespace tutti::comm {

struct GlooGroupOptions {
  GroupInfo info;
  std::shared_ptr<Store> store;
  std::string prefix;             // of this group's keys
  std::string address;            // of this rank's host
  std::unique_ptr<Group> local;   // the members on this host; null when this rank is alone there
  std::vector<int> leaders = {};  // with `local` on any host: the first member on each, ascending
  double timeout_seconds = 60;
};

class GlooGroup : public Group {
 public:
  explicit GlooGroup(GlooGroupOptions options);
  ~GlooGroup() override;

  std::vector<RankActivity> activity() const override;  // of this rank
  void fail_with(const std::string& message) override;

 protected:
  Ticket enqueue(engine::Stream& stream, const Call& call) override;
  bool done(int32_t lane, uint64_t number) const override;
  void wait(engine::Stream& stream, int32_t lane, uint64_t number) override;

 private:
  struct Lane {
    CallQueue queue;
    uint64_t number = 0;  // of collectives or of messages
    std::thread thread;
  };
  // What ranks exchange before a collective.
  struct Header {
    CallShape shape;
    uint64_t number;
    uint64_t generation;
    int64_t send_count;  // of all_to_all, to the receiving rank
  };
  // A collective from its announcement to the others on; before its turn only its receives are
  // posted, since no rank sends data before all have been compared.
  struct Begun {
    uint64_t number = 0;
    std::vector<Header> mine, theirs;
    std::vector<GlooLink::Transfer> headers;
    std::array<std::vector<GlooLink::Transfer>, 2> receives;  // of its phases
    std::vector<char> scratch;  // what other ranks give to a reduction, in their order
  };
  struct Outgoing {
    const void* data;
    int64_t bytes;
    int peer;
    uint64_t tag;
  };

  Lane& lane_of(const CallShape& shape, int32_t& index);
  void run(Lane& lane);
  void carry_out(const Call& call, uint64_t number);
  void transfer(const Call& call, uint64_t number);
  Begun& begun(uint64_t number) { return begun_[number % begun_.size()]; }
  void begin(uint64_t number, bool is_next);  // is_next: the one before is being carried out
  void compare_calls(const Call& call, uint64_t number);
  void collect_failure(const std::string& why);
  std::string name_of(int rank) const;
  // The messages of one phase of a collective: receives are posted, sends happen in exchange(),
  // which ends when all have.
  void send_to(int peer, const void* data, int64_t bytes, uint64_t number, size_t phase);
  void receive_from(int peer, void* data, int64_t bytes, uint64_t number, size_t phase);
  void exchange(uint64_t number, size_t phase);

  void receive_all_reduce(const std::vector<int>& ranks, const Call& call, uint64_t number);
  void receive_reduce_scatter(const Call& call, uint64_t number);
  void receive_all_gather(const Call& call, uint64_t number);

  void all_reduce_by_hosts(const Call& call, uint64_t number);
  // The following: after their receives.
  void all_reduce_among(const std::vector<int>& ranks, const Call& call, uint64_t number);
  void reduce_scatter_flat(const Call& call, uint64_t number);
  void all_gather_flat(const Call& call, uint64_t number);
  void all_to_all_flat(const Call& call, uint64_t number);
  void broadcast_flat(const Call& call, uint64_t number);

  std::shared_ptr<Store> store_;
  std::string prefix_;
  std::unique_ptr<Group> local_;
  std::vector<int> leaders_;
  std::vector<int> everybody_;
  GlooLink link_;
  std::unique_ptr<engine::Stream> stream_;  // of the communication thread

  std::vector<char> wide_;  // of bf16 sums by hosts
  Lane* collectives_ = nullptr;
  std::array<Begun, 2> begun_;  // by number: what is carried out, and what is next
  std::vector<Outgoing> outgoing_;
  std::vector<GlooLink::Transfer> sends_;
  std::vector<const void*> sources_;

  mutable std::mutex mutex_;  // of the members below
  std::map<int32_t, std::unique_ptr<Lane>> lanes_;
  RankActivity activity_;
  std::string failure_;
};

}  // namespace tutti::comm
