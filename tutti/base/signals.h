// Signals, received by one thread and polled between steps: SIGTERM and SIGINT ask to checkpoint
// and stop, SIGUSR1 to checkpoint and continue. A second SIGTERM or SIGINT ends the process at once
// with exit code 128 + signal. SIGUSR2 asks for the same as the first SIGTERM, however often it
// comes; so does SIGHUP, which a terminal that closes sends, itself and through its shell, unless
// it was ignored at the start (nohup).
//
// A thread and not handlers, because a handler's frame is written below the stack pointer of
// whatever thread it interrupts, and oneDNN 2.6's generated f32 kernels keep theirs in a heap
// buffer: a signal in the middle of such a product overwrote the heap.
#pragma once

namespace tutti {

// Blocks the signals in the calling thread and all threads it starts from now on, and starts the
// thread that takes them. To be called once, before any other thread exists.
void watch_signals();

// Notes whether SIGHUP was ignored when the process was started. For .preinit_array: a library's
// constructor may take the signal over (UCX, which Open MPI of Debian 13 brings, does).
// watch_signals() then ignores it again. Without this call it looks for itself.
void remember_ignored_hangup();

int stop_signal();  // the signal that asked to stop, or 0

// The user pressed Ctrl-C or sent SIGTERM: the command gives up; the exit code is 128 + signal.
struct Interrupted {
  int signal;
};
void throw_if_interrupted();

// From now on, writing to a pipe without a reader (a log's reader has ended) is an error of that
// write, and no signal that ends the process. Children get the signal as usual (spawn.h).
void outlive_readers();

bool take_checkpoint_request();  // true once per SIGUSR1 (several may merge into one)

}  // namespace tutti
