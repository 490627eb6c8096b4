// Retention of a run's checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::checkpoint {

struct Retention {
  int64_t keep_last = 2;  // newest valid ones; 0 keeps all
  bool keep_best = true;  // and the one with the lowest validation loss
};

// Removes valid checkpoints beyond `retention`, counted back from `newest_step`, which was just
// made durable, and what crashed saves left (remove_unfinished). Later steps (a run that went back
// behind a damaged checkpoint) and damaged checkpoints stay and don't count. To be called while
// none is being written. Returns the removed paths.
//
// The manifest goes first and durably, then the shards: a crash never leaves a checkpoint that
// looks valid but is not. In an object store, where another process may have taken this one for
// dead, only what was listed goes, and nothing where a manifest has appeared or changed since.
std::vector<std::string> apply_retention(FileSystem& files, const std::string& folder,
                                         const Retention& retention, int64_t newest_step);

// Removes what interrupted saves left, of any step: step folders without a manifest, and in an
// object store uploads that were never closed. To be called while none is being written. Returns
// the removed paths. Where uploads cannot be listed or ended, the rest goes all the same, and then
// that Error is thrown; apply_retention(), which comes often, does without it.
std::vector<std::string> remove_unfinished(FileSystem& files, const std::string& folder);

// Of a file system.
void remove_checkpoint(FileSystem& files, const std::string& path);

}  // namespace tutti::checkpoint
