// Which run a home in an object store belongs to. Names are not enough: runs/mine of two projects,
// or a/mine and b/mine, have the same home below one checkpoint.store, and would continue each
// other. HOME/owner.json says which run it is and where its folder is; it is written by conditional
// requests, so that of two runs that begin at once one gets the home.
//
// A run folder that records the run's id may use its home from anywhere. One that records nothing
// (another machine, or the folder is lost) may continue the run from the same path.
#pragma once

#include <string>

#include "tutti/base/file.h"

namespace tutti::train {

struct HomeOwner {
  std::string run_id;      // RunState::run_id, 16 hex digits; empty: no run has the home yet
  std::string run_folder;  // absolute
  std::string version;     // of what was read (ObjectStore::version)
};

// Of a home that is not in an object store: no run.
HomeOwner read_owner(FileSystem& files, const std::string& home);

// Throws usage, with what to do, where `home` belongs to another run than that of `run_folder`.
void check_owner(FileSystem& files, const HomeOwner& owner, const std::string& home,
                 const std::string& run_folder);

// Makes it the home of this run, if it still is as `owner` was read: else throws peer. Throws
// unsupported where the store ignores the conditions of a write, on which all that several
// processes do there depends.
void claim_home(FileSystem& files, const HomeOwner& owner, const std::string& home,
                const std::string& run_folder, const std::string& run_id);

}  // namespace tutti::train
