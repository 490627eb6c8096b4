// A rank's owned slices of the flat arenas (ZeRO, spec/mesh/zero.h).
#pragma once

#include "tutti/optim/adamw.h"
#include "tutti/spec/mesh/zero.h"

namespace tutti::parallel {

// Owned elements that lie together in the flat arenas and in the shard.
struct OwnedSlice {
  spec::ShardSlice shard;
  optim::AdamwState state;  // views of them; state.weights is empty without masters
};

}  // namespace tutti::parallel
