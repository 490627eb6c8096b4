// The process between the controller and the job's command: it holds the job's lock, runs the
// command, forwards requests to stop, kills unresponsive processes, and records the exit. It
// enforces time limit and budget even without a controller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/control/launches/launcher.h"

namespace tutti::control {

// Runs launch `generation` of the job in `folder` (launch_folder.h) and returns when it has ended.
// Returns the exit code of the command, for a system outside to know.
// Does nothing (0) where the launch is not the newest any more, has begun before, or was asked to
// die. `program` runs the command, whose words come after its name. To be called once per process,
// after watch_signals(); SIGTERM is passed on as a request to save and stop. `clean_up` is called
// when nothing of the command is left, before others learn that it has ended.
int supervise(
    FileSystem& files, const std::string& folder, int64_t generation, const std::string& program,
    const std::function<void(const LaunchOrder&, std::optional<int> exit_code)>& clean_up = {});

}  // namespace tutti::control
