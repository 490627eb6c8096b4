// The group of ranks on several hosts, over TCP (gloo_link.h).
//
// A communication thread carries out collectives, and one for each rank and direction messages.
// Every collective begins with all ranks telling each other what they were asked for. Reductions
// are our own (gloo of Debian 12 has neither bf16 nor a fixed order): rank r gets part r of all,
// reduces it in rank order, and gives it to the others. Where a host has several of the ranks,
// large all_reduce calls go through its local group first, then between the first ranks of the
// hosts, then through the local groups again; sums of bf16 travel as f32 meanwhile, so that they
// are rounded once.
//
// A rank that fails leaves the reason in the store and closes its connections; the others find it
// there. Who vanishes is known by its connections.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/call_queue.h"
#include "tutti/comm/gloo_link.h"
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

  Lane& lane_of(const CallShape& shape, int32_t& index);
  void run(Lane& lane);
  void carry_out(const Call& call, uint64_t number);
  void transfer(const Call& call, uint64_t number);
  void compare_calls(const Call& call, uint64_t number);
  void collect_failure(const std::string& why);
  std::string name_of(int rank) const;

  void all_reduce_by_hosts(const Call& call, uint64_t tag);
  void all_reduce_among(const std::vector<int>& ranks, const Call& call, uint64_t tag);
  void reduce_scatter_flat(const Call& call, uint64_t tag);
  void all_gather_flat(const Call& call, uint64_t tag);
  void all_to_all_flat(const Call& call, uint64_t tag);
  void broadcast_flat(const Call& call, uint64_t tag);

  std::shared_ptr<Store> store_;
  std::string prefix_;
  std::unique_ptr<Group> local_;
  std::vector<int> leaders_;
  std::vector<int> everybody_;
  GlooLink link_;
  std::unique_ptr<engine::Stream> stream_;  // of the communication thread

  std::vector<char> scratch_, wide_;
  std::vector<GlooLink::Transfer> transfers_;
  std::vector<const void*> sources_;

  mutable std::mutex mutex_;  // of the members below
  std::map<int32_t, std::unique_ptr<Lane>> lanes_;
  RankActivity activity_;
  std::string failure_;
};

}  // namespace tutti::comm
