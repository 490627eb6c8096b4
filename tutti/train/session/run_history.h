// What the events of a run record for resuming it: which run it is, and which checkpoints it has
// had.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "tutti/base/file.h"

namespace tutti::train {

struct RunHistory {
  bool has_started = false;
  std::set<std::string> ids;  // of the run (RunState::run_id), over all its sessions
  // Steps of which a checkpoint was made durable since the run last began at step 0. Retention may
  // have removed older ones.
  std::set<int64_t> saved_steps;
  std::string recipe = {};  // of the last session, as YAML; empty: not recorded
};

// Of RUN/events.jsonl; empty when there is none. Reads the lines of two kinds of events only, so
// that the record of a long run takes no longer than reading its bytes.
RunHistory read_history(FileSystem& files, const std::string& run_folder);

}  // namespace tutti::train
