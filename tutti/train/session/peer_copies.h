// Two copies of the state of a recent step in the memory of different hosts, so that a run whose
// host is lost resumes from there instead of from the newest durable checkpoint.
//
// Each rank keeps its own part in its host's memory (a folder on tmpfs, checkpoint/store/piece.h),
// where it outlives the process, and another to its peer on the next host. A restart of the run, on
// these hosts, some of them or others as well, finds the newest step of which every part is
// somewhere, whatever the mesh is now.
//
// Takes twice a rank's part of a checkpoint on each host, four times while the next set is made,
// and once the whole checkpoint when a run resumes. With one host there is one copy: it outlives
// processes, not the host. A node of Slurm counts as a host, also where several are one machine.
//
// Copies belong to the user who runs the ranks, and no other user may read them; where checkpoints
// are sealed, they are, too. They are taken as long as their number stands in the run folder, and
// are garbage otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/piece.h"
#include "tutti/train/session/peer_copies_folder.h"
#include "tutti/train/session/rank_consensus.h"

namespace tutti::train {

class PeerCopies {
 public:
  // `folder`: of this host alone, on tmpfs, for a run in `run_folder`, which seals with the key in
  // `key_file` (empty: it does not). All functions are collective; nothing else uses the group of
  // all ranks meanwhile.
  PeerCopies(FileSystem& files, std::string folder, const std::string& run_folder,
             std::string key_file, const RankConsensus& consensus);

  // Which host has too little memory for all that it is to keep, where each rank has `bytes` of a
  // checkpoint and its host memory for `free_bytes` more; nullopt: none.
  std::optional<std::string> lacks_room(int64_t bytes, int64_t free_bytes);

  // Keeps the state of `state.step`; sets of other steps then leave. Where any rank cannot (no
  // room), all of them keep what they had: returns the reason.
  std::optional<std::string> keep(const std::vector<checkpoint::TensorSource>& tensors,
                                  const checkpoint::State& state);
  int64_t kept_bytes() const { return kept_bytes_; }  // by this rank, for itself and for others
  int hosts() const { return 1 + *std::max_element(hosts_.begin(), hosts_.end()); }

  // The newest step above `step` of which the hosts together hold everything, as a checkpoint on
  // every host: returns its path. Nullopt when there is none, or where it cannot be had (damage, no
  // key for it): `warn` then gets the reason, on rank 0.
  std::optional<std::string> find_newer(int64_t step,
                                        const std::function<void(const std::string&)>& warn);

  // A durable checkpoint has taken over.
  void forget();

 private:
  struct Size {
    int64_t part_bytes = 0, bytes = 0;
  };
  struct Passage {
    checkpoint::Piece piece;
    int64_t rank = 0;  // that sends it, or is to get it
    Size size;
  };
  // Sends what is to go out and gets what is to come, all at once; the other ranks know of it.
  // Returns what went wrong here.
  std::string pass(const std::optional<Passage>& out, const std::vector<Passage>& in);
  int64_t leader_of(int host) const;
  bool leads_host() const { return leader_of(host()) == consensus_.rank(); }
  int host() const { return hosts_[static_cast<size_t>(consensus_.rank())]; }
  bool all_agree(bool mine);
  // That of the first rank that has one, with its number; heard by all.
  std::optional<std::string> first_problem(const std::string& mine);
  void remove(const std::string& path);

  FileSystem& files_;
  const std::string folder_;
  const std::string key_file_;
  std::string unusable_;  // why nothing can be kept in the folder
  const RankConsensus& consensus_;
  uint64_t set_ = 0;
  std::vector<int> hosts_;  // of every rank
  int64_t kept_bytes_ = 0;
};

// The peer of `rank` on the next host; -1 when there is one host.
int64_t peer_on_next_host(const std::vector<int>& hosts, int64_t rank);

}  // namespace tutti::train
