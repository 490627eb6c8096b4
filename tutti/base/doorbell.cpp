#include "tutti/base/doorbell.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

namespace tutti {
namespace {

constexpr int64_t kSpinNanoseconds = 200'000;       // several times what being woken takes
constexpr int64_t kActiveNanoseconds = 20'000'000;  // OMP_WAIT_POLICY=active
constexpr int64_t kLookNanoseconds = 2'000'000;     // between looks at how long a thread waited
constexpr int64_t kCalmNanoseconds = 20'000'000;    // without spinning, after it waited too long
constexpr int64_t kToleratedShare = 20;             // one twentieth of the time
constexpr int kPausesBetweenClocks = 16;

enum class WaitPolicy { automatic, passive, active };

WaitPolicy read_wait_policy() {
  const char* text = std::getenv("OMP_WAIT_POLICY");
  if (text == nullptr) return WaitPolicy::automatic;
  if (strcasecmp(text, "passive") == 0) return WaitPolicy::passive;
  return strcasecmp(text, "active") == 0 ? WaitPolicy::active : WaitPolicy::automatic;
}
WaitPolicy wait_policy() {
  static const WaitPolicy policy = read_wait_policy();
  return policy;
}

int64_t monotonic_nanoseconds() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Until when no thread of this process spins.
std::atomic<int64_t> calm_until{0};

// How long this thread could have run but had to wait for a core: the second number of
// /proc/thread-self/schedstat, nanoseconds.
class DelayMeter {
 public:
  DelayMeter() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {
    delay_ = read_delay();
  }
  ~DelayMeter() {
    if (file_ >= 0) close(file_);
  }
  DelayMeter(const DelayMeter&) = delete;
  DelayMeter& operator=(const DelayMeter&) = delete;

  void look(int64_t now) {
    const int64_t elapsed = now - looked_;
    if (elapsed < kLookNanoseconds) return;
    const int64_t delay = read_delay();
    if ((delay - delay_) * kToleratedShare > elapsed) {
      calm_until.store(now + kCalmNanoseconds, std::memory_order_relaxed);
    }
    looked_ = now;
    delay_ = delay;
  }

 private:
  int64_t read_delay() const {
    char text[64];
    const ssize_t bytes = file_ < 0 ? 0 : pread(file_, text, sizeof text - 1, 0);
    if (bytes <= 0) return 0;
    text[bytes] = 0;
    const char* space = std::strchr(text, ' ');
    return space == nullptr ? 0 : std::strtoll(space, nullptr, 10);
  }

  int file_;
  int64_t delay_ = 0;
  int64_t looked_ = monotonic_nanoseconds();
};

// Whether a thread that begins to wait now spins first.
bool may_spin_at(int64_t now) {
  if (wait_policy() != WaitPolicy::automatic) return wait_policy() == WaitPolicy::active;
  thread_local DelayMeter meter;
  meter.look(now);
  return now >= calm_until.load(std::memory_order_relaxed);
}

}  // namespace

void Doorbell::ring() {
  rings_.fetch_add(1);
  // Either the ringer sees the sleeper, or the kernel sees that the bell has rung.
  if (sleepers_.load() != 0) {
    syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool Doorbell::wait(uint32_t seen, double timeout_seconds, bool spin) {
  if (rings_.load() != seen) return true;
  const int64_t begin = monotonic_nanoseconds();
  if (spin && may_spin_at(begin)) {
    const int64_t end =
        begin + (wait_policy() == WaitPolicy::active ? kActiveNanoseconds : kSpinNanoseconds);
    do {
      for (int i = 0; i < kPausesBetweenClocks; ++i) {
        if (rings_.load(std::memory_order_acquire) != seen) return true;
        pause_briefly();
      }
    } while (monotonic_nanoseconds() < end);
  }
  return sleep(seen, timeout_seconds);
}

void Doorbell::wait(uint32_t seen) {
  while (!wait(seen, -1)) {
  }
}

bool Doorbell::sleep(uint32_t seen, double timeout_seconds) {
  timespec timeout = {};
  if (timeout_seconds >= 0) {
    timeout.tv_sec = static_cast<time_t>(timeout_seconds);
    timeout.tv_nsec = static_cast<long>(std::fmod(timeout_seconds, 1.0) * 1e9);
  }
  sleepers_.fetch_add(1);
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, timeout_seconds < 0 ? nullptr : &timeout, nullptr,
          0);
  sleepers_.fetch_sub(1);
  return rings_.load() != seen;
}

}  // namespace tutti
