// Reads back what JsonLinesSink wrote, from any process and version: events of killed runs, of runs
// that are still running, and of older versions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/telemetry/events.h"

namespace tutti::telemetry {

// The event of one line; nullopt when it is of no known kind. Unknown members are passed over. A
// member that is absent or of another type keeps its default; measured values (losses, norms,
// rates, times of StepDone and EvaluationDone) are NaN then, and when null.
std::optional<Event> event_from_json(const Json& line);

// Likewise, of an object with the members of CorpusSource.
CorpusSource corpus_source_from_json(const Json& object);

struct ReadCount {
  int64_t events = 0;
  int64_t unknown = 0;         // lines of kinds that this version does not know
  int64_t unreadable = 0;      // lines that are no JSON object, such as one that a crash cut
  bool last_line_cut = false;  // the file ends inside a line that is none
};

// Calls `on_event` for every event of the file, in order. Memory does not grow with the file.
// `on_progress(done_bytes, total_bytes)` is called about every MiB. Throws not_found or io.
ReadCount read_events(FileSystem& files, const std::string& path,
                      const std::function<void(const Event&)>& on_event,
                      const std::function<void(int64_t, int64_t)>& on_progress = {});

}  // namespace tutti::telemetry
