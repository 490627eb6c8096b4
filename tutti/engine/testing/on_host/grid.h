// CUDA on the host: the kernels of the CUDA backend, compiled as C++, and what they are launched
// with, so that the same tests that run on a GPU run where there is none. It proves what is
// computed and in which order, not how fast: indices, barriers, exchanges between lanes, what of a
// block is shared, what streams and events order, what a graph replays. Beyond it are what a
// compiler for a GPU makes of the code, the libraries (cuBLASLt and cuDNN have stand-ins) and
// caches that are not coherent.
//
// The threads of a block are fibers of one thread of the host. Each runs until it meets a barrier
// or ends; the order of blocks, warps and lanes is upwards in one launch and downwards in the next,
// so that a missing barrier gives wrong values in one of them. A barrier that not all threads reach
// aborts with the place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti::engine::on_host {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  size_t count() const { return size_t{x} * y * z; }
};

// Runs `thread` for every thread of every block. Shared memory that a block asks for at its launch
// is at dynamic_shared(), of undefined content.
void run_grid(const Extent& grid, const Extent& block, size_t shared_bytes,
              const std::function<void()>& thread);

// ---- Of the running thread ----------------------------------------------------------------------

void* dynamic_shared();
void wait_for_block();
// Ends all threads of the grid where they are, and with them the use of all devices.
void trap();

// Gives `value` to the warp and returns that of lane `from`, when all lanes that have not ended
// gave theirs.
uint64_t exchange(uint64_t value, unsigned from);
unsigned ballot(bool value);
unsigned lane();

}  // namespace tutti::engine::on_host
