// Requests from outside, counted by signal handlers and polled between steps:
// SIGTERM and SIGINT ask to checkpoint and stop, SIGUSR1 to checkpoint and go on. A second SIGTERM
// or SIGINT ends the process at once with exit code 128 + signal.
#pragma once

namespace tutti {

void install_signal_handlers();
int stop_signal();               // the signal that asked to stop, or 0
bool take_checkpoint_request();  // true once per SIGUSR1 (several may merge into one)

}  // namespace tutti
