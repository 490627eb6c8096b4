// `tutti train --nproc N`: starts the ranks, monitors them, and restarts them from the newest
// checkpoint when one of them dies or hangs.
//
// A restart has a new generation (comm/world/world.h) and the same number of ranks, or fewer (at
// least --min-nproc) when a rank is lost for good: it reports that by its exit code
// (comm::kExitRankGone), or ends twice in a row before its first step. After three failures in a
// row at the same step, or ten without a newer checkpoint, the run fails: restarts do not repair a
// persistent fault.
#pragma once

#include "tutti/base/error.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/launch/plan.h"

namespace tutti::launch {

// Passes to a rank why the ranks were restarted.
inline constexpr const char* kNoteVariable = "TUTTI_NOTE";

// Where this host keeps copies of the state (train/session/peer_copies.h): TUTTI_MEMORY_ROOT, or
// tmpfs.
std::string memory_root();

// The exit code of the command. Throws what is wrong with the recipe before anything is started,
// and peer when the run is given up.
int train_with_ranks(const TrainArguments& arguments);

// For a rank: why it ends, for its launcher. Never throws.
void report_to_launcher(comm::Store& store, const comm::LaunchEnvironment& environment,
                        const Error& error) noexcept;

}  // namespace tutti::launch
