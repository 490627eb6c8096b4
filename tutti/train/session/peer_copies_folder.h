// Where hosts keep copies of a run's state in memory (peer_copies.h): a folder on tmpfs for each
// run, which bears its number, and stays as long as the run knows that.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/file.h"
#include "tutti/train/session/rank_consensus.h"

namespace tutti::train {

// The file in such a folder that says whose it is: the path of the run folder.
inline constexpr const char* kCopiesOwner = "run";

// A run has a number among its files, made when copies are first asked for, so that another run of
// the same name starts afresh. Collective: rank 0 reads or makes it.
uint64_t peer_copies_number(FileSystem& files, const std::string& run_folder,
                            const RankConsensus& consensus);

// What this host is called: by Slurm where a job of it runs, else by itself.
std::string peer_copies_host();

// Where a host keeps those of the run with this number: under `root`, which is its memory. Hosts
// that share `root` have different names.
std::string peer_copies_folder(const std::string& root, uint64_t number);

// The newest complete set, as far as this host's pieces show, for a command that starts ranks
// again.
struct KeptCopy {
  int64_t step = -1;  // -1: none
  std::string path;   // of a folder that changed last when it was whole
};
KeptCopy newest_peer_copy(FileSystem& files, const std::string& root,
                          const std::string& run_folder);

// Whether ranks would take what hosts have of the run: some have been asked to keep copies.
bool may_have_peer_copies(FileSystem& files, const std::string& run_folder);

// What hosts still have of the run is never taken again.
void forget_peer_copies(FileSystem& files, const std::string& run_folder);

// Bytes that copies may take under `root`: what is free there and in this host's memory.
int64_t room_for_peer_copies(const std::string& root);

// Removes what lies under `root`, of this host, for runs that have forgotten it. Best effort;
// returns how many runs' copies there were.
int64_t sweep_peer_copies(FileSystem& files, const std::string& root);

}  // namespace tutti::train
