// All ranks of a run, the hosts they are on, and the groups they form along the axes of the mesh.
//
// Ranks meet in a store under a generation. When a run continues after a failure, or with other
// ranks, its ranks make a new World under a higher generation: groups, addresses and shared memory
// are new, so nothing of the old one can reach it, and a rank of an old generation is refused.
//
// When one of its groups fails, a rank fails all its others with the same message, so that a
// failure reaches every rank of the world, whatever it waits for.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/comm/local/peer_memory.h"
#include "tutti/comm/local/segment.h"
#include "tutti/comm/rendezvous/store.h"
#include "tutti/comm/world/axes.h"
#include "tutti/comm/world/transport.h"
#include "tutti/engine/arena.h"
#include "tutti/spec/mesh/mesh.h"

namespace tutti::comm {

struct WorldOptions {
  int64_t rank = 0;
  spec::Mesh mesh;  // of as many ranks as the world has
  uint64_t generation = 1;
  double timeout_seconds = 60;   // for every rank to arrive
  std::shared_ptr<Store> store;  // null: a world of one rank
  // Where ranks of one host find shared memory; null: they are processes, through the store.
  std::shared_ptr<SegmentSource> segments;
  bool threads = false;  // all ranks are threads of this process
  bool direct = true;    // of threads: read and write private buffers of others, without staging
  Transport transport = Transport::automatic;
  std::string address = "127.0.0.1";  // of this host, for ranks of others
  std::string host;                   // ranks of equal text share memory; empty: host_identity()
  std::string gpu;                    // what this rank computes on (RankLocation)
  int device = -1;                    // the same as the device's backend numbers it; -1: none
};

// The machine and the name spaces in which this process can reach others: of processes and users,
// whose memory it may open; of networks, since hosts are distinguished by the links between them,
// also where one machine plays several; of time, which ranks of a host compare. Hashed, safe to
// print.
std::string host_identity();

class World {
 public:
  // Returns when all ranks have arrived; throws peer naming those that have not, or when the
  // generation is not the current one.
  explicit World(WorldOptions options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return options_.rank; }
  int64_t size() const { return options_.mesh.world(); }
  const spec::Mesh& mesh() const { return options_.mesh; }
  uint64_t generation() const { return options_.generation; }
  // Of every rank, numbered from 0 in the order of their first ranks.
  const std::vector<int>& hosts() const { return hosts_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return static_cast<int>(local_ranks_.size()); }
  const std::vector<int64_t>& local_ranks() const { return local_ranks_; }

  int device() const { return options_.device; }
  // What carries the groups but the one of all ranks.
  const TransportChoice& transport() const { return transport_; }

  // Groups exist from the first time they are asked for; that call waits for all their members, so
  // ranks ask in the same order (Session: all at start-up). They live as long as the world.
  Group& all();
  // The same ranks by the transport of the other groups: for what all of them sum on the streams
  // that they compute on.
  Group& all_computing();
  Group& group(Axes axes);
  Group& expert_replicas();
  Group& tensor_copies(int64_t count);
  // The ranks along pp once more: with two interleaved stages activations and gradients go from one
  // rank to the same other, and each needs an order of its own.
  Group& pipeline_gradients();
  // Asked for by the ranks that are in it.
  Group& pipeline_ends();

  // Whether ranks of this host are processes that exchange data through memory: then it spares
  // copies to share() the arenas that collectives use.
  bool shares_arenas() const;
  // Buffers in this arena (kind shared) are read and written by other ranks of the host directly,
  // in all groups, until it is withdrawn: before it ends, and when no call uses it any more.
  // Without it, or for other buffers, data is staged.
  void share(const engine::Arena& arena);
  void withdraw(const engine::Arena& arena);

  // Memory that all ranks of this host share, zero at first: every one of them asks, with the same
  // name and size. Others with the store find it under host_segment_key.
  std::shared_ptr<Segment> host_segment(const std::string& name, int64_t bytes);
  static std::string host_segment_key(const std::string& name, uint64_t generation, int host);

  // Ends every group of this rank, and through them the world.
  void abort(const std::string& reason);

  // Why the world has failed, empty while it has not. For any thread: a rank that computes learns
  // of a failure in its next call only.
  std::string failure() const;

  // Of all groups (Group::waited_seconds).
  double waited_seconds() const;

  // What every rank of the world was last seen doing, through the groups of this rank.
  std::vector<RankActivity> activity() const;

 private:
  std::string key(const std::string& name) const;
  void check_generation();
  void meet();
  void choose(const std::vector<RankLocation>& locations);
  std::vector<int64_t> all_ranks() const;
  Group& make_group(const std::string& name, std::vector<int64_t> members,
                    std::vector<GroupLink> links = {});
  std::unique_ptr<Group> build_group(GroupInfo info);
  std::unique_ptr<Group> build_local(GroupInfo info);
  std::unique_ptr<Group> build_gloo(GroupInfo info);
  void fail_all(const std::string& message);

  WorldOptions options_;
  TransportChoice transport_;
  std::vector<int> hosts_;
  std::vector<int64_t> local_ranks_;  // the ranks of this host, ascending
  int local_rank_ = 0;
  std::shared_ptr<PeerMemory> memory_;
  mutable std::mutex mutex_;
  bool closing_ = false;
  std::string failure_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace tutti::comm
