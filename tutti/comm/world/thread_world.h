// A world whose ranks are threads of this process: for tests, and for running several ranks
// without a launcher.
#pragma once

#include <functional>
#include <string>

#include "tutti/comm/world/world.h"
#include "tutti/engine/stream.h"

namespace tutti::comm {

// Runs body(world, stream) once per rank of the mesh, each in a thread with a stream of its own
// with `threads` threads, and returns when all have ended. An exception of one rank aborts its
// world; the first exception that is not the echo of another rank's (kind peer) is thrown.
// `options` holds for all ranks, but for rank, mesh, store and segments, and what `arrange` changes
// of a rank's own: ranks that are to behave as if they were on several hosts, or have devices.
using RankBody = std::function<void(World& world, engine::Stream& stream)>;
using Arrange = std::function<void(WorldOptions& own)>;
void run_threads(const spec::Mesh& mesh, const RankBody& body, const WorldOptions& options = {},
                 int threads = 1, const Arrange& arrange = {});

}  // namespace tutti::comm
