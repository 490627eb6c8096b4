#include "tutti/base/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace tutti {
namespace {

std::atomic<int> stop_requested{0};
std::atomic<bool> checkpoint_requested{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "signal handlers may use lock-free atomics only");

void on_stop(int signal) {
  int expected = 0;
  if (!stop_requested.compare_exchange_strong(expected, signal)) ::_exit(128 + signal);
}

void on_checkpoint(int /*signal*/) { checkpoint_requested = true; }

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = on_stop;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  action.sa_handler = on_checkpoint;
  ::sigaction(SIGUSR1, &action, nullptr);
}

int stop_signal() { return stop_requested; }

bool take_checkpoint_request() { return checkpoint_requested.exchange(false); }

}  // namespace tutti
