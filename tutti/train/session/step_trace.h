// Records the actions (spec/schedule/step_list.h) and operations of some steps, and writes them as
// a Perfetto trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/engine/recorder.h"
#include "tutti/engine/stream.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/schedule/schedule.h"
#include "tutti/telemetry/trace.h"

namespace tutti::train {

// One event of category "operation" for each, with its dims, FLOPs and bytes.
void add_operations(const std::vector<engine::OpRecord>& records, telemetry::Trace& trace);

class StepTrace {
 public:
  // Records `steps` steps of the session after the first two (which warm up); 0 records nothing.
  StepTrace(int64_t steps, std::string path, const spec::Mesh& mesh);

  // Around step number `index` (0 for the session's first).
  void begin_step(int64_t index, engine::Stream& stream);
  // Whether step number `index` is recorded.
  bool records(int64_t index) const;
  // Before each action of a step, on the thread that executes it, and after the last one. On a
  // device an action lasts as long as it took to enqueue.
  void begin_action(const spec::Action& action);
  void end_action();
  // Writes the file after the last recorded step. Throws Error when it cannot be written.
  void end_step(int64_t index, FileSystem& files, engine::Stream& stream);

 private:
  int64_t steps_;
  std::string path_;
  spec::Mesh mesh_;
  double begin_seconds_ = 0;
  bool recording_ = false;
  std::optional<spec::Action> action_;
  double action_seconds_ = 0;  // when it began
  engine::Recorder recorder_;
  telemetry::Trace trace_;
};

}  // namespace tutti::train
