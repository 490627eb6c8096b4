// events.jsonl: one JSON object per line and event (to_json in telemetry/events.h).
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/line_file.h"

namespace tutti::telemetry {

// Appends, so that a resumed run continues its file; a line that a crash or an error left
// unfinished is ended first. Each event is one write to the operating system; flush() makes the
// file durable.
class JsonLinesSink final : public Sink {
 public:
  JsonLinesSink(FileSystem& files, const std::string& path) : file_(files, path) {}
  void write(const Event& event) override { file_.append(dump_json(to_json(event)) + "\n"); }
  void flush() override { file_.sync(); }

 private:
  LineFile file_;
};

}  // namespace tutti::telemetry
