// CUDA on the host: the kernels of the CUDA backend compiled as C++, with an emulation of the
// runtime, so that the same tests run with and without a GPU. It tests results and their order, not
// speed: indices, barriers, exchanges between lanes, shared memory, the order that streams and
// events impose, the replay of graphs. It does not cover the code generated for a GPU, the
// libraries (cuBLASLt and cuDNN have stand-ins) and incoherent caches.
//
// The threads of a block are fibers of one host thread. Each runs until it reaches a barrier or
// ends. The order of blocks, warps and lanes is ascending in one launch and descending in the next,
// so that a missing barrier gives wrong values in one of them. A barrier that not all threads reach
// aborts and names the block and thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti::engine::on_host {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  size_t count() const { return size_t{x} * y * z; }
};

// Runs `thread` for every thread of every block. dynamic_shared() is the shared memory that the
// launch requests, with undefined content.
void run_grid(const Extent& grid, const Extent& block, size_t shared_bytes,
              const std::function<void()>& thread);

// ---- The running thread -------------------------------------------------------------------------

void* dynamic_shared();
void wait_for_block();
// Stops all threads of the grid and makes all devices unusable.
void trap();

// Publishes `value` to the warp and returns that of lane `from`, once all lanes that have not ended
// have published theirs.
uint64_t exchange(uint64_t value, unsigned from);
unsigned ballot(bool value);
unsigned lane();

}  // namespace tutti::engine::on_host
