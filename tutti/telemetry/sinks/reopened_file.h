// Reopens a log file after a write failure.
#pragma once

#include <memory>

#include "tutti/base/error.h"
#include "tutti/base/file.h"

namespace tutti::telemetry {

// Calls `open` where `file` is null, then `action`. After an Error of either `file` is null, so
// that the next call opens it again; the caller gets the error.
template <typename Open, typename Action>
void with_open_file(std::unique_ptr<WritableFile>& file, const Open& open, const Action& action) {
  try {
    if (!file) open();
    action();
  } catch (const Error&) {
    file.reset();
    throw;
  }
}

}  // namespace tutti::telemetry
