// Records the operations of some steps and writes them as a Perfetto trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/engine/recorder.h"
#include "tutti/engine/stream.h"
#include "tutti/telemetry/trace.h"

namespace tutti::train {

// One event of category "operation" for each, with its dims, FLOPs and bytes.
void add_operations(const std::vector<engine::OpRecord>& records, telemetry::Trace& trace);

class StepTrace {
 public:
  // Records `steps` steps of the session after the first two (which warm up); 0 records nothing.
  StepTrace(int64_t steps, std::string path);

  // Around step number `index` (0 for the session's first).
  void begin_step(int64_t index, engine::Stream& stream);
  // Writes the file after the last recorded step. Throws Error when it cannot be written.
  void end_step(int64_t index, FileSystem& files, engine::Stream& stream);

 private:
  bool records(int64_t index) const;

  int64_t steps_;
  std::string path_;
  double begin_seconds_ = 0;
  engine::Recorder recorder_;
  telemetry::Trace trace_;
};

}  // namespace tutti::train
