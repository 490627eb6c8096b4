// The newest step of a run that another process is writing.
#pragma once

#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/telemetry/events.h"

namespace tutti::telemetry {

// The last whole StepDone within the last 64 KiB of an events.jsonl; nothing when there is none, or
// no file yet. Takes the same time however long the file is.
std::optional<StepDone> last_step(FileSystem& files, const std::string& path);

}  // namespace tutti::telemetry
