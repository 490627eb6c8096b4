// For a process whose launcher decides when it has waited long enough: batch systems send a request
// to stop to every process of a job at once, and the launcher then passes it on to its children,
// who get it twice. Defined in signals.cpp.
#pragma once

namespace tutti {

// From now on a second SIGTERM or SIGINT (signals.h) changes nothing. Any thread, any time.
void leave_ending_to_launcher();

}  // namespace tutti
