// A line-based log file that recovers after a write failure.
#pragma once

#include <memory>
#include <string>

#include "tutti/base/file.h"

namespace tutti::telemetry {

// Appends to `path`. After an error the file is reopened by the next call, and what the failed one
// may have left of its line is ended first, so that the same line can be given again.
class LineFile {
 public:
  // A line that a crash left unfinished is ended.
  LineFile(FileSystem& files, std::string path);

  void append(const std::string& line);  // with its line end; one write to the operating system
  void sync();                           // returns when all lines are durable

 private:
  void open();

  FileSystem& files_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;  // null after an error
};

}  // namespace tutti::telemetry
