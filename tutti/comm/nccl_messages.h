// Sends and receives of a rank through NCCL. NCCL does what one communicator is given in order, and
// several messages given at once end together; so each peer has a lane per direction, made with the
// first message, and no message waits for one of another peer or direction.
//
// add() and advance() never wait: the peer may come much later. What cannot be given to NCCL yet
// waits here for advance(), which must be called from time to time until nothing does.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/call.h"
#include "tutti/comm/nccl_lane.h"

namespace tutti::comm {

class NcclMessages {
 public:
  // `rank`: in the group, which names lanes and keys in the store.
  NcclMessages(std::string group, std::shared_ptr<Store> store, std::string prefix, int rank);
  ~NcclMessages();
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;

  struct Place {
    int32_t lane = 0;
    uint64_t number = 0;
  };
  // After what is on `stream` now.
  Place add(cudaStream_t stream, const Call& call);
  // Throws peer when NCCL fails.
  void advance();
  // Whether messages wait for advance(); for any thread.
  bool are_waiting() const { return waiting_.load(); }
  // Whether it is on its lane's stream, so that event_of() says when it is done.
  bool is_started(const Place& place) const;
  cudaEvent_t event_of(const Place& place) const;
  std::string failure() const;

  void begin_end();
  void end(double deadline_seconds);
  void abort();

 private:
  struct Message {
    Call call;
    uint64_t number = 0;
    cudaEvent_t ready = nullptr;
  };
  struct Link {
    std::unique_ptr<NcclLane> lane;
    uint64_t added = 0, started = 0;
    std::deque<Message> waiting;
    bool is_under_way = false;  // the first of them was given to NCCL
  };
  size_t link_of(int peer, bool is_send);
  void advance(Link& link);
  cudaEvent_t spare_event();
  void count_waiting();

  std::string group_;
  std::shared_ptr<Store> store_;
  std::string prefix_;
  int rank_;
  std::map<std::pair<int, bool>, size_t> places_;  // of links
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<cudaEvent_t> spare_;
  std::atomic<bool> waiting_{false};
};

}  // namespace tutti::comm
