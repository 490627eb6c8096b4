#include "tutti/base/mapped_range.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace tutti {
namespace {

constexpr size_t kSlots = 256;
constexpr uintptr_t kFree = 0;
constexpr uintptr_t kTaken = 1;  // not readable yet

struct Slot {
  std::atomic<uintptr_t> begin{kFree};
  uintptr_t end = 0;
  const char* path = nullptr;
};
std::array<Slot, kSlots> slots;

void write_text(const char* text) {
  const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  (void)written;  // no one to report it to
}

// Within a signal: only what is safe there. The default action comes when the read is tried again.
void name_the_file(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin <= kTaken || at < begin || at >= slot.end) continue;
    write_text("\ntutti: error: '");
    write_text(slot.path);
    write_text(
        "': a part of it cannot be read; its medium is damaged, or it was cut off while it was "
        "read\n");
    return;
  }
}

void install_once() {
  static const bool done = [] {
    struct sigaction now {};
    if (::sigaction(SIGBUS, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return false;
    struct sigaction action {};
    action.sa_sigaction = name_the_file;
    action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  (void)done;
}

}  // namespace

MappedRange::MappedRange(const void* begin, size_t size, const std::string& path) : slot_(kSlots) {
  if (size == 0) return;
  install_once();
  for (size_t i = 0; i < kSlots; ++i) {
    uintptr_t expected = kFree;
    if (!slots[i].begin.compare_exchange_strong(expected, kTaken)) continue;
    const auto first = reinterpret_cast<uintptr_t>(begin);
    slots[i].end = first + size;
    slots[i].path = path.c_str();
    slots[i].begin.store(first, std::memory_order_release);
    slot_ = i;
    return;
  }
}

MappedRange::~MappedRange() {
  if (slot_ < kSlots) slots[slot_].begin.store(kFree, std::memory_order_release);
}

}  // namespace tutti
