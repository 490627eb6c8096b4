#include "tutti/base/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tutti/base/launched.h"

namespace tutti {
namespace {

std::atomic<int> stop_requested{0};
std::atomic<bool> checkpoint_requested{false};
std::atomic<bool> second_is_ignored{false};
std::atomic<bool> hangup_was_ignored{false};

void take_signals(sigset_t watched) {
  while (true) {
    int signal = 0;
    if (sigwait(&watched, &signal) != 0) continue;
    if (signal == SIGUSR1) {
      checkpoint_requested = true;
      continue;
    }
    int none = 0;
    if (signal == SIGUSR2 || signal == SIGHUP) {
      stop_requested.compare_exchange_strong(none, SIGTERM);
      continue;
    }
    const bool is_second = !stop_requested.compare_exchange_strong(none, signal);
    if (is_second && !second_is_ignored) ::_exit(128 + signal);
  }
}

// Taken by a waiting thread, a signal would come although it is ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void remember_ignored_hangup() { hangup_was_ignored = is_ignored(SIGHUP); }

void watch_signals() {
  if (hangup_was_ignored) std::signal(SIGHUP, SIG_IGN);
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGTERM);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGUSR1);
  sigaddset(&watched, SIGUSR2);
  if (!is_ignored(SIGHUP)) sigaddset(&watched, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  std::thread(take_signals, watched).detach();
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

void leave_ending_to_launcher() { second_is_ignored = true; }

int stop_signal() { return stop_requested; }

void throw_if_interrupted() {
  if (const int signal = stop_signal(); signal != 0) throw Interrupted{signal};
}

bool take_checkpoint_request() { return checkpoint_requested.exchange(false); }

}  // namespace tutti
