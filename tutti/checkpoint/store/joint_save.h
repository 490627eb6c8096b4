// One checkpoint that several ranks write together, each its own slices into the same folder. They
// synchronize through files alone, so that writer threads need no communication:
//
//   rank 0   prepares the folder, then makes `saving-ATTEMPT`
//   others   wait for it; write their shards; make `part-ATTEMPT-RRRRR.json`, a manifest of these
//   rank 0   writes its shards, waits for all parts, joins them into manifest.json and commits
//
// Everything a part names is durable before the part exists, and the parts before the commit. A
// rank that fails leaves `failed-ATTEMPT-RRRRR` with the reason, and rank 0 aborts the save; so do
// the others when rank 0 fails, including late ones. Files of an earlier attempt are ignored (every
// save has its own ATTEMPT), and the next save of the same step removes them.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/writer.h"

namespace tutti::checkpoint {

// What the names of a rank's files begin with.
std::string rank_prefix(int64_t rank);

// Adds files and slices of the part at `path` to those of other ranks. Throws corrupt when they
// disagree about a tensor.
void add_part(Manifest& manifest, const Manifest& part, const std::string& path);

// As write_checkpoint, called by every rank of `joint` with equal folder, state and attempt, and
// with disjoint slices that together make up every tensor. Returns on rank 0 when the checkpoint is
// committed, elsewhere when this rank's part is durable. Throws io when a rank does not come within
// joint.timeout_seconds or has failed, naming it.
Written write_joint_checkpoint(FileSystem& files, const std::string& folder,
                               const std::vector<TensorSource>& tensors, const State& state,
                               const WriteOptions& options, const JointSave& joint);

}  // namespace tutti::checkpoint
