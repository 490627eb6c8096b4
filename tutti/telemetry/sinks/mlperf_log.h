// RUN/mlperf.log: the lines of an MLPerf Training log, from MlperfLine events.
//
//   :::MLLOG {"namespace": "", "time_ms": 1714897740668, "event_type": "INTERVAL_START",
//             "key": "run_start", "value": null, "metadata": {"file": "session.cpp", "lineno":
//             145}}
//
// on one line, members in this order and separated as Python's json module does, which is how the
// published logs look. Format: mlcommons/logging, mllog/mllog.py.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/line_file.h"

namespace tutti::telemetry {

// Without a line end.
std::string format_mlperf_line(const MlperfLine& line, double wall_seconds);

// Each line is one write to the operating system; flush() makes the file durable.
class MlperfLogSink final : public Sink {
 public:
  // `path` is created, and replaced where it exists: a log records one run.
  MlperfLogSink(FileSystem& files, const std::string& path);
  void write(const Event& event) override;
  void flush() override { file_.sync(); }

 private:
  LineFile file_;
};

}  // namespace tutti::telemetry
