#include "tutti/telemetry/sinks/line_file.h"

#include <utility>

#include "tutti/telemetry/sinks/reopened_file.h"

namespace tutti::telemetry {
namespace {

bool ends_inside_a_line(FileSystem& files, const std::string& path) {
  if (!files.exists(path) || files.size_bytes(path) == 0) return false;
  return files.map(path)->bytes().back() != '\n';
}

}  // namespace

LineFile::LineFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
  open();
}

void LineFile::open() {
  const bool torn = ends_inside_a_line(files_, path_);
  file_ = files_.open_append(path_);
  if (torn) file_->append("\n", 1);
}

void LineFile::append(const std::string& line) {
  with_open_file(
      file_, [&] { open(); }, [&] { file_->append(line.data(), line.size()); });
}

void LineFile::sync() {
  with_open_file(
      file_, [&] { open(); }, [&] { file_->sync(); });
}

}  // namespace tutti::telemetry
