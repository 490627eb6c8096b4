// Messages between the ranks of a group over TCP, through gloo. The only file that uses gloo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/comm/rendezvous/store.h"

namespace tutti::comm {

class GlooLink {
 public:
  // Connects every rank with every other. `prefix` is of this group alone; `address` is where this
  // rank listens: a name or number of one of its host's interfaces. Throws peer when a rank does
  // not come.
  GlooLink(Store& store, const std::string& prefix, const std::string& address, int rank, int size,
           double timeout_seconds);
  ~GlooLink();
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;

  // One buffer on its way to or from one rank. The n-th bytes sent under a tag between two ranks
  // meet the n-th received, and must be as many. Ends in wait(), which comes before destruction.
  class Transfer {
   public:
    Transfer() = default;
    ~Transfer();
    Transfer(Transfer&&) noexcept;
    Transfer& operator=(Transfer&&) noexcept;
    void wait();  // throws peer naming the rank when the connection is lost, or after interrupt()

   private:
    friend class GlooLink;
    struct State;
    std::unique_ptr<State> state_;
  };
  // Any thread. Empty buffers need no transfer: wait() returns at once.
  Transfer send(const void* data, int64_t bytes, int peer, uint64_t tag);
  Transfer receive(void* data, int64_t bytes, int peer, uint64_t tag);

  // Any thread: ends every wait, here and at the other ranks, and all later ones.
  void interrupt();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tutti::comm
