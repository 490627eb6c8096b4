// The cores of a rank of a command.
#pragma once

#include "tutti/comm/rendezvous/launch_environment.h"

namespace tutti::launch {

// Binds this rank to its share of its host's cores, unless its launcher has bound it; how many they
// are, 0 when nothing was done. Rank 0 prints the shares on standard error when `verbose`. Before
// other threads are started.
int take_cores(const comm::LaunchEnvironment& environment, bool verbose);

}  // namespace tutti::launch
