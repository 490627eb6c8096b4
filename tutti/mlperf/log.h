// Reads MLPerf logs: the output of a training job with records in it.
//
// A record starts at the last ":::MLLOG " of a line, so that launchers may put text in front
// ("  0: :::MLLOG {...}"); carriage returns end a line too, as progress bars leave them. The file
// is read once, front to back, through a window: memory stays bounded for files and lines of any
// length. Nothing in a log is an error of the reader: what cannot be read becomes a problem with
// its line, and reading continues.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tutti/base/file.h"
#include "tutti/mlperf/record.h"

namespace tutti::mlperf {

struct LogProblem {
  int64_t line = 0;
  std::string message;
};

struct LogVisitor {
  std::function<bool(const Record&)> record;  // false: seen enough, stop reading
  std::function<void(const LogProblem&)> problem;
};

struct LogSize {
  int64_t lines = 0;
  int64_t records = 0;   // readable ones
  int64_t problems = 0;  // unreadable ones
  bool cut = false;      // the last line does not end: the file may have been cut there
};

LogSize read_log_text(std::string_view text, const LogVisitor& visitor);

// Throws what FileSystem::map throws: no such file, no permission.
LogSize read_log(FileSystem& files, const std::string& path, const LogVisitor& visitor);

}  // namespace tutti::mlperf
