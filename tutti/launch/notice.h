// A file that announces the termination of this machine, such as a cloud's agent writes.
#pragma once

#include <string>

namespace tutti::launch {

// From now on the appearance of `file` is a request to save and stop, as SIGUSR2 is
// (base/signals.h). Empty: nothing. To be called after watch_signals().
void watch_notice(const std::string& file);

}  // namespace tutti::launch
