// A timeline trace in the Trace Event Format that Perfetto (ui.perfetto.dev) and Chrome open: a
// JSON object whose "traceEvents" are complete events ("ph": "X") with begin ("ts") and duration
// ("dur") in microseconds, here written to the nanosecond.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::telemetry {

struct TraceEvent {
  std::string name;
  std::string category;
  double begin_seconds = 0;  // any clock; the earliest event of the trace becomes 0
  double duration_seconds = 0;
  int64_t thread = 0;
  Json args = nullptr;  // shown with the event; an object or nothing
};

// Thread-safe. Events of one thread nest when one lies within the other, boundaries included.
class Trace {
 public:
  explicit Trace(std::string process_name, int64_t process = 0);
  void name_thread(int64_t thread, const std::string& name);
  void add(TraceEvent event);
  Json to_json() const;
  void write(FileSystem& files, const std::string& path) const;  // atomic

 private:
  struct ThreadName {
    int64_t thread;
    std::string name;
  };
  std::string process_name_;
  int64_t process_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<ThreadName> thread_names_;
  std::vector<TraceEvent> events_;
};

}  // namespace tutti::telemetry
