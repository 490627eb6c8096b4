// A file that tells that this machine will be taken away soon, such as the agent of a cloud writes.
#pragma once

#include <string>

namespace tutti::launch {

// From now on the appearance of `file` is a request to save and stop, as SIGUSR2 is
// (base/signals.h). Empty: nothing. To be called after watch_signals().
void watch_notice(const std::string& file);

}  // namespace tutti::launch
