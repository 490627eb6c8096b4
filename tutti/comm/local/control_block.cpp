#include "tutti/comm/local/control_block.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace tutti::comm {

struct ControlBlock::Header {
  uint64_t magic;
  int64_t size;
  uint64_t generation;
  alignas(64) std::atomic<uint64_t> arrivals;
  alignas(64) std::atomic<uint32_t> failure;  // 0: none, 1: being written, 2: readable
  char message[kMessageBytes];
};

namespace {

constexpr double kCreatorLookSeconds = 1e-4;     // between looks at whether the creator has come
constexpr uint64_t kMagic = 0x3130494954545554;  // "TUTTII01", the version of the layout

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

int64_t aligned(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

struct Layout {
  int64_t slots, channels, counts, inline_data, staging, pieces, end;
  Layout(int64_t header, int64_t size) {
    slots = aligned(header);
    channels = slots + aligned(size * static_cast<int64_t>(sizeof(RankSlot)));
    counts = channels + aligned(size * size * static_cast<int64_t>(sizeof(Channel)));
    inline_data = counts + aligned(2 * size * 2 * size * static_cast<int64_t>(sizeof(int64_t)));
    staging = inline_data + aligned(2 * size * ControlBlock::kInlineBytes);
    pieces = staging + aligned(2 * size * ControlBlock::kStagingBytes);
    end = pieces + aligned(2 * size * size * ControlBlock::kPieceBytes);
  }
};

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int64_t ControlBlock::bytes(int size) {
  return Layout(static_cast<int64_t>(sizeof(Header)), size).end;
}

ControlBlock::ControlBlock(std::shared_ptr<Segment> segment, int rank, int size,
                           uint64_t generation, bool create, double timeout_seconds)
    : segment_(std::move(segment)), rank_(rank), size_(size) {
  TUTTI_CHECK(segment_->bytes() == bytes(size), "control block of {} bytes for {} ranks",
              segment_->bytes(), size);
  const Layout layout(static_cast<int64_t>(sizeof(Header)), size);
  auto* base = static_cast<char*>(segment_->data());
  counts_ = reinterpret_cast<int64_t*>(base + layout.counts);
  inline_ = base + layout.inline_data;
  staging_ = base + layout.staging;
  pieces_ = base + layout.pieces;
  if (create) {
    // Fresh memory is zero. `magic` is left alone until the end: the others are looking at it.
    header_ = new (base) Header;  // NOLINT(*-init): and not Header(), which would write zeros
    slots_ = new (base + layout.slots) RankSlot[static_cast<size_t>(size)]();
    channels_ = new (base + layout.channels) Channel[static_cast<size_t>(size * size)]();
    header_->size = size;
    header_->generation = generation;
    std::atomic_ref(header_->magic).store(kMagic, std::memory_order_release);
    return;
  }
  header_ = std::launder(reinterpret_cast<Header*>(base));
  slots_ = std::launder(reinterpret_cast<RankSlot*>(base + layout.slots));
  channels_ = std::launder(reinterpret_cast<Channel*>(base + layout.channels));
  // The creator announces the memory before it has formatted it, and may be killed in between.
  const double end = monotonic_seconds() + timeout_seconds;
  while (std::atomic_ref(header_->magic).load(std::memory_order_acquire) == 0) {
    if (monotonic_seconds() > end) {
      tutti::fail(ErrorKind::peer, "the rank that created the shared memory of a group has exited");
    }
    sleep_seconds(kCreatorLookSeconds);
  }
  if (header_->magic != kMagic || header_->size != size) {
    tutti::fail(ErrorKind::corrupt,
                "shared memory of another version of Tutti, or of {} ranks, not {}", header_->size,
                size);
  }
  if (header_->generation != generation) {
    tutti::fail(ErrorKind::peer, "rank {} of generation {} came to a group of generation {}", rank,
                generation, header_->generation);
  }
}

void ControlBlock::arrive(uint64_t phase) const {
  slot(rank_).arrived.store(phase, std::memory_order_relaxed);
  const uint64_t count = header_->arrivals.fetch_add(1) + 1;
  if (count == phase * static_cast<uint64_t>(size_)) ring_all();
}

bool ControlBlock::all_arrived(uint64_t phase) const {
  return header_->arrivals.load() >= phase * static_cast<uint64_t>(size_);
}

void ControlBlock::ring(int rank) const { slot(rank).doorbell.ring(); }

void ControlBlock::ring_all() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) ring(rank);
  }
}

bool ControlBlock::wait(uint32_t seen, bool spin, double timeout_seconds) const {
  return slot(rank_).doorbell.wait(seen, timeout_seconds, spin);
}

void ControlBlock::fail(const std::string& message) const {
  uint32_t none = 0;
  if (header_->failure.compare_exchange_strong(none, 1)) {
    const size_t bytes = std::min(message.size(), kMessageBytes - 1);
    std::memcpy(header_->message, message.data(), bytes);
    header_->message[bytes] = 0;
    header_->failure.store(2);
  }
  // Written by another rank: at most a copy of a line, unless it was killed just then.
  for (int i = 0; header_->failure.load() != 2 && i < 1'000'000; ++i) pause_briefly();
  header_->failure.store(2);
  ring_all();
  ring(rank_);
}

bool ControlBlock::failed() const { return header_->failure.load() == 2; }

std::string ControlBlock::message() const { return header_->message; }

void ControlBlock::enter(bool threads) {
  threads_ = threads;
  if (!threads) segment_->hold(rank_);
  slot(rank_).process.store(getpid());
  slot(rank_).presence.store(static_cast<uint32_t>(Presence::here));
  ring_all();
}

void ControlBlock::leave() const {
  slot(rank_).presence.store(static_cast<uint32_t>(Presence::left));
  ring_all();
}

bool ControlBlock::is_alive(int rank) const {
  const auto presence = static_cast<Presence>(slot(rank).presence.load());
  if (presence == Presence::left) return false;
  return presence == Presence::expected || threads_ || rank == rank_ || segment_->is_held(rank);
}

}  // namespace tutti::comm
