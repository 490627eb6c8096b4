#include "tutti/engine/testing/on_host/grid.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/engine/testing/on_host/fiber.h"

constinit thread_local uint3 threadIdx = {}, blockIdx = {}, blockDim = {}, gridDim = {};

namespace tutti::engine::on_host {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kMostShared = size_t{256} << 10;
constexpr unsigned char kUndefined = 0xff;  // NaN

enum class State : uint8_t { ready, at_block_barrier, in_exchange, ended };

struct Thread {
  State state = State::ready;
  uint64_t exchanges = 0;  // started by this thread
};

struct Warp {
  // The published words. No lane starts exchange n + 2 before all have read n, so two slots are
  // enough.
  std::array<std::array<uint64_t, kWarp>, 2> words;
  std::array<unsigned, 2> arrived = {};  // lanes at the exchange of a slot
  unsigned live = 0;                     // lanes that have not ended
  uint64_t complete = 0;                 // the last exchange that all of them have reached
};

// The block that this host thread runs. Fibers and their stacks are reused.
class Block {
 public:
  void run(const uint3& index, const std::function<void()>& body, bool descending) {
    blockIdx = index;
    const size_t count = size_t{blockDim.x} * blockDim.y * blockDim.z;
    if (count != count_ || blockDim.x != width_ || blockDim.y != height_) shape();
    threads_.assign(count_, {});
    warps_.resize((count_ + kWarp - 1) / kWarp);
    for (size_t i = 0; i < warps_.size(); ++i) {
      warps_[i].live = static_cast<unsigned>(std::min<size_t>(kWarp, count_ - i * kWarp));
      warps_[i].arrived = {};
      warps_[i].complete = 0;
    }
    live_ = count_;
    while (fibers_.size() < count_) fibers_.emplace_back(fibers_.size());
    for (size_t i = 0; i < count_; ++i) fibers_[i].begin(body);
    while (live_ > 0) {
      for (size_t i = 0; i < warps_.size(); ++i) {
        run_warp(descending ? warps_.size() - 1 - i : i, descending);
        if (is_trapped_) return;
      }
      open_barrier();
    }
  }

  // Suspends all threads for good: the device is lost.
  void trap() {
    is_trapped_ = true;
    leave(State::ended);
  }
  bool is_trapped() const { return is_trapped_; }

  void wait_for_block() { leave(State::at_block_barrier); }

  // Returns the words of all lanes; those of ended lanes are undefined.
  const std::array<uint64_t, kWarp>& exchange(uint64_t value) {
    const uint64_t number = ++threads_[current_].exchanges;
    Warp& warp = warps_[current_ / kWarp];
    warp.words[number % 2][current_ % kWarp] = value;
    warp.arrived[(number + 1) % 2] = 0;
    ++warp.arrived[number % 2];
    complete(warp, number);
    if (warp.complete < number) leave(State::in_exchange);
    return warp.words[number % 2];
  }
  // Whether that lane has reached the exchange of this thread.
  bool takes_part(size_t of_lane) const {
    const size_t thread = current_ / kWarp * kWarp + of_lane;
    return thread < count_ && threads_[thread].exchanges >= threads_[current_].exchanges;
  }
  unsigned lane() const { return current_ % kWarp; }

 private:
  void shape() {
    count_ = size_t{blockDim.x} * blockDim.y * blockDim.z;
    width_ = blockDim.x;
    height_ = blockDim.y;
    indices_.clear();
    for (unsigned i = 0; i < count_; ++i) {
      indices_.push_back({i % width_, i / width_ % height_, i / width_ / height_});
    }
  }

  void leave(State state) {
    threads_[current_].state = state;
    fibers_[current_].pause();
  }

  static void complete(Warp& warp, uint64_t exchange) {
    if (warp.arrived[exchange % 2] >= warp.live) warp.complete = exchange;
  }

  // Runs the lanes until none can continue.
  void run_warp(size_t warp, bool descending) {
    const size_t first = warp * kWarp;
    const size_t lanes = std::min<size_t>(kWarp, count_ - first);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < lanes; ++i) {
        const size_t thread = first + (descending ? lanes - 1 - i : i);
        Thread& one = threads_[thread];
        const bool ready = one.state == State::ready || (one.state == State::in_exchange &&
                                                         warps_[warp].complete >= one.exchanges);
        if (!ready) continue;
        one.state = State::ready;
        moved = true;
        resume(thread);
        if (is_trapped_) return;
      }
    }
  }

  void resume(size_t thread) {
    current_ = thread;
    threadIdx = indices_[thread];
    if (!fibers_[thread].resume()) return;
    threads_[thread].state = State::ended;
    --live_;
    Warp& warp = warps_[thread / kWarp];
    --warp.live;
    complete(warp, warp.complete + 1);  // others may be waiting for it
  }

  void open_barrier() {
    for (size_t i = 0; i < count_; ++i) {
      Thread& one = threads_[i];
      TUTTI_CHECK(one.state != State::in_exchange,
                  "thread {} of block {} {} {} waits for lanes that are at the block's barrier", i,
                  blockIdx.x, blockIdx.y, blockIdx.z);
      if (one.state == State::at_block_barrier) one.state = State::ready;
    }
  }

  size_t count_ = 0;
  size_t current_ = 0;
  size_t live_ = 0;
  bool is_trapped_ = false;
  unsigned width_ = 0, height_ = 0;
  std::vector<uint3> indices_;  // threadIdx of each thread
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::deque<Fiber> fibers_;
};

Block& block() {
  static thread_local Block one;
  return one;
}

alignas(1024) thread_local std::array<unsigned char, kMostShared> shared_memory;

}  // namespace

void run_grid(const Extent& grid, const Extent& extent, size_t shared_bytes,
              const std::function<void()>& thread) {
  static std::atomic<uint64_t> launches{0};
  const bool descending = ++launches % 2 == 0;
  gridDim = {grid.x, grid.y, grid.z};
  blockDim = {extent.x, extent.y, extent.z};
  const size_t blocks = grid.count();
  for (size_t i = 0; i < blocks; ++i) {
    const size_t at = descending ? blocks - 1 - i : i;
    const uint3 index = {static_cast<unsigned>(at % grid.x),
                         static_cast<unsigned>(at / grid.x % grid.y),
                         static_cast<unsigned>(at / grid.x / grid.y)};
    std::fill_n(shared_memory.data(), shared_bytes, kUndefined);
    block().run(index, thread, descending);
    if (block().is_trapped()) return lose_devices();
  }
}

void* dynamic_shared() { return shared_memory.data(); }
void wait_for_block() { block().wait_for_block(); }
void trap() { block().trap(); }
unsigned lane() { return block().lane(); }

uint64_t exchange(uint64_t value, unsigned from) { return block().exchange(value)[from]; }

unsigned ballot(bool value) {
  const auto& words = block().exchange(value ? 1 : 0);
  unsigned out = 0;
  for (unsigned i = 0; i < kWarp; ++i) {
    if (block().takes_part(i) && words[i] != 0) out |= 1U << i;
  }
  return out;
}

}  // namespace tutti::engine::on_host
