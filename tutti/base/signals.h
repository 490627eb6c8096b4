// Requests from outside, noted by one thread that waits for signals and polled between steps:
// SIGTERM and SIGINT ask to checkpoint and stop, SIGUSR1 to checkpoint and go on. A second SIGTERM
// or SIGINT ends the process at once with exit code 128 + signal. SIGUSR2 asks for the same as the
// first SIGTERM, however often it comes.
//
// A thread and not handlers, because a handler's frame is written below the stack pointer of
// whatever thread it interrupts, and oneDNN 2.6's generated f32 kernels keep theirs in a heap
// buffer: a signal in the middle of such a product overwrote the heap.
#pragma once

namespace tutti {

// Blocks the signals in the calling thread and all threads it starts from now on, and starts the
// thread that takes them. To be called once, before any other thread exists.
void watch_signals();

int stop_signal();               // the signal that asked to stop, or 0
bool take_checkpoint_request();  // true once per SIGUSR1 (several may merge into one)

}  // namespace tutti
